"""Answers that try to be paid for wrong RTL, or to break out: two groups of the red team (all others: tests/redteam), and the layers alone.

The wrong design in every attack is a counter instead of the requested LFSR. Whatever else the answer does, it must not pass
or change anything outside its workspace, and the next grading must work.
"""

import hashlib
import json
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.redteam.attack import BASES
from benchmarks.redteam.catalogue import GROUPS
from rtl_grader.extraction.response import extract_answer
from rtl_grader.grading.compose import read_services
from rtl_grader.grading.evidence import cheating
from rtl_grader.grading.executors import make_executor
from rtl_grader.grading.executors.base import Job, Session, StepResult
from rtl_grader.grading.grader import Grader
from rtl_grader.grading.limits import Limits
from rtl_grader.grading.screen import screen
from rtl_grader.hdl.directives import neutralise
from rtl_grader.types.answer import Answer
from rtl_grader.types.verdict import Outcome
from tests.places import REPOSITORY

LFSR = "cvdp_copilot_lfsr_0001"
REFUSED, OUTRIGHT = (
    {a.name.partition(" @")[0]: a.text for a in GROUPS[group]}
    for group in ("refused", "outright")
)
wrong = BASES["cvdp/lfsr"].design


@pytest.fixture(
    scope="module", params=["bubblewrap", pytest.param("docker", marks=pytest.mark.docker)]
)
def executor(request):
    with make_executor(request.param) as started:
        yield started


@pytest.fixture(scope="module")
def limited(executor):
    limits = Limits(
        wall_s=10, cpu_s=10, memory_mb=2048, processes=64, file_mb=16, disk_mb=64, output_mb=8
    )
    with closing(Grader(executor, limits=limits)) as grader:
        yield grader


@pytest.fixture(scope="module", autouse=True)
def _nothing_outside_changes():
    """This repository and the usual places are the same after all attacks."""

    def state():
        inside = sorted(
            (REPOSITORY / "packages/rtl-grader/rtl_grader/grading/inside").rglob("*.py")
        )
        digest = hashlib.sha256(b"".join(path.read_bytes() for path in inside)).hexdigest()
        places = ("/tmp/broken-out", "/tmp/evil", "/results.xml", "/src", "/guard")
        return digest, [Path(place).exists() for place in places]

    before = state()
    yield
    assert state() == before


def grade(grader, examples, text):
    problem = examples[LFSR]
    return grader.grade(problem, Answer(files={problem.targets[0]: text}))


@pytest.mark.parametrize("name", REFUSED)
def test_an_attack_is_rejected_with_reasons(limited, examples, name):
    verdict = grade(limited, examples, REFUSED[name])
    assert verdict.outcome is Outcome.REJECTED, verdict.reasons
    assert verdict.reasons
    assert (verdict.tests_passed, verdict.tests_total) == (0, 0)


@pytest.mark.corpus
@pytest.mark.parametrize("name", OUTRIGHT)
def test_a_trick_is_not_paid(limited, examples, name):
    verdict = grade(limited, examples, OUTRIGHT[name])
    assert not verdict.passed
    assert verdict.outcome is not Outcome.INFRASTRUCTURE_ERROR, verdict.reasons
    assert verdict.tests_passed == 0, verdict.reasons


def test_after_all_attacks_the_golden_answer_still_passes(limited, examples):
    assert limited.grade(examples[LFSR], Answer(files=examples[LFSR].golden)).passed


@pytest.mark.parametrize(
    "path",
    ["src/conftest.py", "../conftest.py", "/src/test_lfsr.py", "rtl/../src/test_runner.py", "rtl/lfsr_8bit.sv/../../x", "src/test_lfsr.py"],
)  # fmt: skip
def test_only_the_declared_target_is_written(limited, examples, path):
    evil = "raise SystemExit(0)\n"
    target = examples[LFSR].targets[0]
    verdict = limited.grade(examples[LFSR], Answer(files={path: evil, target: wrong()}))
    assert verdict.outcome is Outcome.TESTS_FAILED
    assert limited.grade(examples[LFSR], Answer(files={path: evil})).outcome is Outcome.REJECTED
    response = json.dumps({"code": [{path: evil}, {target: wrong()}]})
    assert not limited.grade(
        examples[LFSR], extract_answer(response, examples[LFSR].targets)
    ).passed


def test_a_hundred_megabytes_are_no_answer_and_end_quickly(limited, examples):
    started = time.monotonic()
    answer = extract_answer("```verilog\n" + "x" * 100_000_000, examples[LFSR].targets)
    assert limited.grade(examples[LFSR], answer).outcome is Outcome.NO_ANSWER
    assert time.monotonic() - started < 300


# Answers that get past the screen


def run_unscreened(executor, problem, text, allowed="fopen,fwrite,fclose,fseek,fread"):
    """Run the harness on an unscreened text; the gate in front of the simulator permits the tasks in `allowed`."""
    services, mounts = read_services(problem.harness)
    services = tuple(replace(step, env={**step.env, "RTL_TASKS": allowed}) for step in services)
    files = {**problem.context, problem.targets[0]: text}
    return executor.run(
        Job(files, dict(problem.harness), services, mounts, Limits(wall_s=20))
    ).steps


@pytest.mark.parametrize(
    "name", ["results written at the end", "results written late", "results written at once"]
)
def test_results_that_hdl_wrote_are_not_attested(executor, examples, name):
    problem = examples[LFSR]
    results = run_unscreened(executor, problem, REFUSED[name])
    tests = [
        test["status"]
        for result in results
        for session in result.sessions
        for test in session.tests
    ]
    assert "failed" in tests
    passed = all(result.exit_code == 0 for result in results)
    cheats = cheating(results, problem.harness)
    assert cheats or not passed
    if name == "results written at the end":  # a `final` block does fool the runner
        assert passed
        assert "not the one that cocotb" in cheats[0]


@pytest.mark.parametrize(
    ("exit_code", "status", "cheats"),
    [(0, "failed", True), (1, "failed", False), (0, "passed", False)],
    ids=["passes despite a failed test", "fails anyway", "passes by itself"],
)
def test_another_results_file_is_cheating_only_if_the_answer_gains_by_it(
    exit_code, status, cheats
):
    test = {"name": "t", "status": status, "message": "", "file": "/src/test.py", "sim_ns": 1.0}
    session = Session(
        results_file="/code/results.xml", complete=True, forged=True, tests=(test,)
    )
    result = StepResult("direct", exit_code, "", 1.0, sessions=(session,))
    assert bool(cheating([result], {})) is cheats


def test_a_simulation_that_ends_early_is_no_pass(executor, examples):
    for name in ("simulation ended early", "simulation ended at once"):
        results = run_unscreened(executor, examples[LFSR], OUTRIGHT[name])
        assert any(result.exit_code != 0 for result in results) or cheating(
            results, examples[LFSR].harness
        )


def test_files_that_a_task_writes_stay_in_the_sandbox(executor, examples):
    text = wrong(
        'integer f; initial begin f = $fopen("/tmp/evil", "w"); $fwrite(f, "x"); $fclose(f); end\n'
    )
    run_unscreened(executor, examples[LFSR], text)
    assert not Path("/tmp/evil").exists()


@pytest.mark.parametrize(
    "name",
    ["results written at the end", "file task from a pasted macro", "memory written to a file"],
)
def test_a_compiled_file_task_is_never_simulated(executor, examples, name):
    """The gate checks the compiled program, so tricks with macros or escapes do not work."""
    results = run_unscreened(executor, examples[LFSR], REFUSED[name], allowed="")
    assert any("the system task $" in reason for result in results for reason in result.refused)
    assert not any(result.sessions for result in results)


def test_no_simulator_can_write_to_its_own_memory(executor, examples):
    text = wrong(
        'integer f; initial begin f = $fopen("/proc/self/mem", "r+"); $display("opened %0d", f != 0); end\n'
    )
    results = run_unscreened(executor, examples[LFSR], text)
    assert "opened 0" in results[0].output


# The screen alone


def test_constructs_of_the_problems_own_files_are_allowed():
    context = {"rtl/m.sv": "module m; reg q; initial force q = 0; endmodule\n"}
    answer = {"rtl/m.sv": "module m; reg q; initial force q = 1; endmodule\n"}
    assert screen(answer, {})
    assert not screen(answer, context)


@pytest.mark.parametrize("task", ['$c("system(\\"id\\");")', '`T(c)("x")', '$fopen("x")'])
def test_the_screen_checks_system_tasks_if_the_harness_uses_other_tools(task):
    """Verilator's programs are C++, and a harness may build them without the gate."""
    answer = {
        "rtl/m.sv": f"`define T(a) $``a\nmodule m; initial {task}; initial $display(1); endmodule\n"
    }
    assert len(screen(answer, {}, "m", several_tools=True)) == 1
    assert not screen(answer, {}, "m", several_tools=False), "the gate checks this"


def test_a_given_file_may_be_included():
    answer = {"rtl/m.sv": '`include "defs.svh"\nmodule m; reg [`W-1:0] r; endmodule\n'}
    assert not screen(answer, {"rtl/defs.svh": "`define W 8\n"})
    assert len(screen(answer, {})) == 1


@pytest.mark.parametrize(
    ("body", "led_out"),
    [
        ("always @* q = tb.d;", True),
        ("always @(posedge clk) tb.stats.errors = 0;", True),
        ("initial #1 disable tb.check;", True),
        ("defparam tb.N = 0;", True),
        ("always @* q = \\$unm_blk_1 .d;", True),
        ("probe p(clk); always @* q = p.b;", False),
        ("given g(clk); always @* q = g.inside;", False),
        ("brought b(clk); always @* q = b.inside;", False),
        ("always @* q = m.clk;", False),
        ("always @* q = undeclared;", False),
    ],
)
def test_hierarchical_names_out_of_the_design_are_refused_if_the_harness_has_hdl(body, led_out):
    answer = {
        "rtl/m.sv": f"module m(input clk, output reg q);\n{body}\nendmodule\nmodule probe(input a); wire b = a; endmodule\n"
    }
    context = {"rtl/given.sv": "module given(input a); wire inside = a; endmodule\n"}
    assert [
        finding.line for finding in screen(answer, context, "m", harness=("bench.sv",))
    ] == ([2] if led_out else [])
    assert not screen(answer, context, "m")


def test_neutralising_keeps_all_other_text():
    text = "`ifndef SYNTHESIS\nx\n`endif\n// synthesis translate_off\ny\n// pragma translate_on\n`ifdef DEBUG\n"
    done = neutralise(text, {"DEBUG"})
    assert done.count("\n") == text.count("\n")
    assert "SYNTHESIS" not in done
    assert "synthesis translate_off" not in done
    assert "`ifdef DEBUG" in done
    assert neutralise("module m; endmodule\n") == "module m; endmodule\n"


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        ('`ifdef SIM\ninteger f = $fopen("x");\n`endif', True),
        ('reg [7:0] m [0:1]; initial $readmemh("../src/golden.hex", m);', True),
        ('reg [7:0] m [0:1]; initial $readmemh("golden.hex", m);', True),
        (
            'localparam F = "/code/src/golden.hex"; reg [7:0] m [0:1]; initial $readmemh(F, m);',
            True,
        ),
        ('initial $dumpfile("/code/rundir/results.xml");', True),
        ('// integer f = $fopen("x");', False),
        ('reg [7:0] m [0:1]; initial $readmemh("table.hex", m);', False),
        ('initial $dumpfile("waves.vcd");', False),
    ],
)
def test_the_screen_checks_all_branches_and_file_names_if_the_harness_uses_other_tools(
    body, refused
):
    answer = {"rtl/m.sv": f"module m;\n{body}\nendmodule\n"}
    names = ("test_m.py", "golden.hex")
    assert (
        bool(screen(answer, {"rtl/table.hex": ""}, "m", harness=names, several_tools=True))
        == refused
    )
    assert not screen(answer, {}, "m", harness=names, several_tools=False)
