"""The tools of an episode, in both executors: their results, their limits, and that nothing escapes or persists."""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from textwrap import indent

import pytest

from benchmarks.common import marked
from rtl_core.config.episode import Bounds
from rtl_core.episodes.tools import TOOLS, definitions
from rtl_core.episodes.workspace import shortened
from rtl_core.prompting.calls import Call
from tests.nouns import a_problem

INVERTER = "module inv(input a, output y);\n  assign y = ~a;\nendmodule\n"
LATCH = "module latch(input e, d, output reg q);\n  always @* if (e) q = d;\nendmodule\n"
BENCH = """module tb;
  reg a = 0; wire y; integer file;
  inv dut(a, y);
  initial begin file = $fopen("log.txt", "w"); $fdisplay(file, "kept"); #1 $display("y is %b", y); $finish; end
endmodule
"""
COCOTB = """import cocotb
from cocotb.triggers import Timer
@cocotb.test()
async def inverts(dut):
    dut.a.value = {value}
    await Timer(1, "ns")
    assert dut.y.value == 1
"""
PROBE = """import os, pathlib, socket
import cocotb
@cocotb.test()
async def look(dut):
{body}
"""
PROBLEM = a_problem(
    context={"docs/spec.md": "y is not a\n" * 400, "rtl/other.sv": "module other; endmodule\n"}, targets=("rtl/inv.sv",),
    harness={"docker-compose.yml": "services: {}", "src/secret_bench.py": "text of the secret bench"}, golden={"rtl/inv.sv": "// text of the golden answer"},
)  # fmt: skip


def probe(tell, body):
    """Run `body` in a cocotb test bench of the model and return the result."""
    tell("write", path="rtl/inv.sv", content=INVERTER)
    tell("write", path="verif/probe.py", content=PROBE.format(body=indent(body, "    ")))
    return tell("simulate", bench="verif/probe.py", top="inv")


def test_files_are_listed_read_in_ranges_written_and_replaced(open_tools):
    tools, tell = open_tools(PROBLEM, result_bytes=1000)
    assert "rtl/inv.sv  (not there yet, asked for)" in tell("list").text
    assert tell("list", under="docs").text.splitlines() == ["docs/spec.md  (4,400 bytes)"]
    whole = tell("read", path="docs/spec.md")
    assert "(a result holds no more)" in whole.text
    assert len(whole.text.encode()) <= 1000
    assert (
        tell("read", path="docs/spec.md", first=399).text.splitlines()[1:] == ["y is not a"] * 2
    )
    assert tell("write", path="/code/rtl/inv.sv", content=INVERTER).ok
    assert not tell("replace", path="rtl/inv.sv", old="a", new="b").ok
    assert (
        tell("replace", path="rtl/inv.sv", old="= ~a", new="= a").text
        == "rtl/inv.sv: replaced at line 2"
    )
    assert tools.workspace.answer().files == {"rtl/inv.sv": INVERTER.replace("~a", "a")}


def test_compiler_messages_are_returned(open_tools):
    tools, tell = open_tools(PROBLEM)
    tell("write", path="rtl/inv.sv", content=INVERTER.replace(";\nend", "\nend"))
    failed = tell("compile")
    assert not failed.ok
    assert "rtl/inv.sv:3: syntax error" in failed.text
    tell(
        "write", path="rtl/inv.sv", content=INVERTER.replace("input a", "input a, input spare")
    )
    assert tell("compile", files="").ok  # an empty list means all sources
    done = tell("compile", files=["rtl/inv.sv"])
    assert done.ok
    assert ("UNUSED" in done.text) == ("verilator" in tools.tools)


def test_the_models_own_bench_is_simulated_and_files_that_it_writes_are_dropped(open_tools):
    _, tell = open_tools(PROBLEM)
    tell("write", path="rtl/inv.sv", content=INVERTER)
    tell("write", path="verif/tb.sv", content=BENCH)
    done = tell("simulate", bench="verif/tb.sv", top="tb")
    assert done.ok
    assert "y is 1" in done.text
    assert "log.txt" not in tell("list").text
    assert tell("read", path="verif/tb.sv").ok  # files that tools wrote persist


@pytest.mark.parametrize(("value", "ok"), [(0, True), (1, False)])
def test_a_cocotb_bench_passes_or_fails(open_tools, value, ok):
    _, tell = open_tools(PROBLEM)
    tell("write", path="rtl/inv.sv", content=INVERTER)
    tell("write", path="verif/test_inv.py", content=COCOTB.format(value=value))
    done = tell("simulate", bench="verif/test_inv.py", top="inv")
    assert done.ok is ok
    assert f"test_inv.inverts {'passed' if ok else 'failed'}" in done.text
    # The same call gives the same text, on any machine: a recorded episode can be played again.
    assert tell("simulate", bench="verif/test_inv.py", top="inv").text == done.text
    assert "REAL TIME" not in done.text
    assert sys.prefix not in done.text


def test_compiling_twice_gives_the_same_text(open_tools):
    _, tell = open_tools(PROBLEM)
    tell("write", path="rtl/inv.sv", content=INVERTER.replace("~a", "8'd1"))
    once = tell("compile").text
    assert tell("compile").text == once
    assert "V e r i l a t i o n" not in once


def test_synthesis_reports_latches_cells_and_errors(open_tools, executor):
    tools, tell = open_tools(PROBLEM)
    if executor.name == "docker" and "synthesize" not in tools.offered:
        pytest.skip("pyosys is not in the image")
    tell("write", path="rtl/inv.sv", content=INVERTER)
    assert "$_NOT_" in tell("synthesize", top="inv").text
    tell("write", path="rtl/inv.sv", content=LATCH)
    assert "$_DLATCH_" in tell("synthesize", top="latch", files=["rtl/inv.sv"]).text
    assert not tell("synthesize", top="missing").ok


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("write", {"path": "../escape.sv", "content": ""}, "no path of the workspace"),
        ("write", {"path": "/etc/passwd", "content": ""}, "no path of the workspace"),
        ("write", {"path": "src/secret_bench.py", "content": ""}, "no path of the workspace"),
        ("read", {"path": "rtl/../../x"}, "no path of the workspace"),
        ("read", {"path": "src/secret_bench.py"}, "no path of the workspace"),
        ("read", {"path": "docs"}, "docs is a directory"),
        ("write", {"path": "rtl", "content": ""}, "rtl is a directory"),
        ("write", {"path": "rtl/other.sv/x.sv", "content": ""}, "rtl/other.sv is a file"),
        ("read", {"path": "rtl/none.sv"}, "there is no rtl/none.sv"),
        ("read", {"path": "docs/spec.md", "first": 999}, "has 400 lines"),
        ("write", {"path": "rtl/a.sv", "content": "\ud800"}, "no UTF-8"),
        ("write", {"path": "rtl/a.sv", "content": "x" * (10 << 20)}, "more than 1,048,576"),
        ("write", {"path": "rtl/a.sv"}, "content: Field required"),
        ("write", {"path": 7, "content": ""}, "path: Input should be a valid string"),
        ("simulate", {"bench": "rtl/other.sv", "top": "a; rm -rf /"}, "top: String should match"),
        ("compile", {"files": "[1"}, "compile takes top, files"),
        ("compile", {"files": "[" * 100_000}, "compile takes top, files"),
        ("shell", {"command": "ls"}, "there is no tool 'shell'; the tools are list, read"),
        ("submit", {}, "none of the files that are asked for was written: rtl/inv.sv"),
    ],
)  # fmt: skip
def test_bad_input_gets_an_error_and_the_episode_continues(open_tools, name, arguments, said):
    tools, tell = open_tools(PROBLEM)
    answer = tell(name, **arguments)
    assert not answer.ok
    assert answer.text.startswith("error: ")
    assert said in answer.text
    assert not tools.submitted
    assert tell("list").ok


def test_code_in_arguments_may_contain_raw_line_breaks(open_tools):
    tools, _ = open_tools(PROBLEM)
    written = tools.call(Call("write", f'{{"path": "rtl/inv.sv", "content": "{INVERTER}"}}'))
    assert written.ok, written.text
    assert tools.workspace.answer().files == {"rtl/inv.sv": INVERTER}


@pytest.mark.parametrize(
    "arguments", ['{"path": ', "[1, 2]", '"text"', "[" * 100_000, "\udcff", "null"]
)
def test_arguments_that_are_not_a_json_object_get_an_error(open_tools, arguments):
    tools, tell = open_tools(PROBLEM)
    answer = tools.call(Call("read", arguments))
    assert (answer.ok, answer.text[:7]) == (False, "error: ")
    assert len(answer.text) < 500
    assert tell("list").ok


def test_the_workspace_is_limited(open_tools):
    _, tell = open_tools(PROBLEM, files=3, workspace_bytes=6000)
    assert "more than 6,000 bytes" in tell("write", path="rtl/a.sv", content="x" * 5000).text
    assert tell("write", path="rtl/a.sv", content="x").ok
    assert "more than 3 files" in tell("write", path="rtl/b.sv", content="x").text


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("reg a = 0; initial forever a = ~a;", "stopped, it used more than 1 s of CPU time"),
        ('initial forever $display("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");', "stopped, it"),
        ("string s = \"x\"; initial forever s = {s, s};", "vvp: "),
    ],
    ids=["never ends", "endless output", "memory"],
)  # fmt: skip
def test_an_endless_bench_is_stopped_and_its_result_is_short(open_tools, body, said):
    tools, tell = open_tools(PROBLEM, call_seconds=1, result_bytes=2000)
    tell("write", path="verif/tb.sv", content=f"module tb; {body} endmodule\n")
    done = tell("simulate", bench="verif/tb.sv", top="tb", files=[])
    assert not done.ok
    assert said in done.text
    assert len(done.text.encode()) <= 2000
    assert 0 < done.used_s == tools.used_s
    assert tell("list").ok


def test_programs_share_the_seconds_of_the_episode(open_tools):
    tools, tell = open_tools(PROBLEM, seconds=0.5)
    tell(
        "write",
        path="verif/tb.sv",
        content="module tb; reg a = 0; initial forever a = ~a; endmodule\n",
    )
    assert "more than 0." in tell("simulate", bench="verif/tb.sv", files=[]).text
    assert tools.used_s >= 0.4
    tools.used_s = 0.5
    assert "the 0.5 s of programs are used up" in tell("compile").text


def test_neither_another_running_episode_nor_files_of_the_host_are_reachable(
    open_tools, tmp_path
):
    """While a program of one episode runs with files, processes and sockets, a program of another searches for them."""
    mark, host = "episode-at-work", tmp_path / "of-the-host"
    host.write_text("text of the host")
    works = (
        "import subprocess\n"
        "for path in ('/code/rtl/other.sv', '/tmp/other', '/dev/shm/other'):\n"
        "    pathlib.Path(path).write_text('text of the ' + 'other episode')\n"
        "doors = socket.socket(), socket.socket(socket.AF_UNIX)\n"
        "for door, address in zip(doors, (('127.0.0.1', 7777), '\\0other-episode')):\n"
        "    door.bind(address)\n"
        "    door.listen()\n"
        f"subprocess.run(['sh', '-c', 'while :; do sleep 1000; done # {mark}'])"
    )
    looks = (
        f"left = [path for path in ('/tmp/other', '/dev/shm/other', {str(host)!r}) if os.path.lexists(path)]\n"
        f"left += [p for p in os.listdir('/proc') if p.isdigit() and b'{mark}' in pathlib.Path('/proc', p, 'cmdline').read_bytes()]\n"
        "left += [path for path in pathlib.Path('/code').rglob('*.sv') if 'other episode' in path.read_text()]\n"
        "for kind, address in ((socket.AF_INET, ('127.0.0.1', 7777)), (socket.AF_UNIX, '\\0other-episode')):\n"
        "    try:\n"
        "        socket.socket(kind).connect(address)\n"
        "        left.append(address)\n"
        "    except OSError:\n"
        "        pass\n"
        "print('found', left)"
    )
    with ThreadPoolExecutor(1) as threads:
        for seconds in (3, 12, 60):  # until one ran while the other searched
            (_, other), (_, tell) = (
                open_tools(PROBLEM, call_seconds=seconds),
                open_tools(PROBLEM),
            )
            at_work = threads.submit(probe, other, works)
            while not (began := marked(mark, "cmdline")) and not at_work.done():
                time.sleep(0.02)
            found = probe(tell, looks).text
            assert "found []" in found
            if began and not at_work.done():
                break
            at_work.result()
        else:
            pytest.fail("they were never at work at the same time")
    assert "cocotb: stopped, it" in at_work.result().text
    assert not marked(mark, "cmdline")  # no process is left


def test_the_model_reads_the_tools_and_limits(open_tools):
    tools, _ = open_tools(PROBLEM, turns=7, tokens=1234, seconds=56, result_bytes=789)
    assert (
        {d["function"]["name"] for d in definitions(tools.offered)}
        == set(tools.offered)
        <= set(TOOLS)
    )
    json.dumps(definitions(tools.offered))
    for said in ("7 turns", "1,234 tokens", "56 seconds", "789 bytes"):
        assert said in tools.bounds.in_words()


def test_a_long_text_is_shortened_in_the_middle():
    text = shortened("é" * 5000, 1000)
    assert len(text.encode()) <= 1000
    assert "bytes left out" in text
    assert text[0] == text[-1] == "é"
    assert shortened("short", Bounds().result_bytes) == "short"
