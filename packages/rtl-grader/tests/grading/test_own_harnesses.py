"""Harnesses that users write themselves: scripts that call the tools as they like. A wrong design passes none of them."""

import pytest

from rtl_grader.grading.evidence import FORGEABLE
from rtl_grader.problems.cvdp import problem_from_record
from rtl_grader.types.answer import Answer
from rtl_grader.types.verdict import Outcome
from rtl_grader.validation.level import Level
from rtl_grader.validation.validate import validate_problem

COMPOSE = """\
services:
  test:
    image: __OSS_SIM_IMAGE__
    volumes: ["./src/:/src/:ro"]
    working_dir: /code/rundir
    env_file: ./src/.env
    command: {command}
"""
ENVIRONMENT = "SIM = icarus\nVERILOG_SOURCES = /code/rtl/m.sv\nTOPLEVEL = m\nMODULE = test_m\nPYTHONPATH = /src\n"
TARGET = "rtl/m.sv"
HEAD = "module m(input [3:0] a, output [3:0] y);\n"
RIGHT, WRONG = f"{HEAD}assign y = ~a;\nendmodule\n", f"{HEAD}assign y = a;\nendmodule\n"
BROKEN = "module m(input [3:0] a, output [3:0] y;\nendmodule\n"
GOOD = "module m(input [3:0] a, output [3:0] y); assign y = ~a; endmodule"


def problem_of(command, **files):
    """A problem that asks for an inverter; the harness runs `command` beside `files` of src, `__` in their names for a dot."""
    record = {
        "id": "own_harness",
        "categories": ["cid003", "easy"],
        "input": {"prompt": "Module m inverts a[3:0] to y[3:0].\n", "context": {}},
        "output": {"response": "", "context": {TARGET: RIGHT}},
        "harness": {
            "files": {
                "docker-compose.yml": COMPOSE.format(command=command),
                "src/.env": ENVIRONMENT,
                **{f"src/{name.replace('__', '.')}": text for name, text in files.items()},
            }
        },
    }
    return problem_from_record(record, source="own")


def grade(grader, problem, text):
    return grader.grade(problem, Answer(files={TARGET: text}))


COCOTB_TEST = """
import cocotb
from cocotb.triggers import Timer

@cocotb.test({})
async def inverts(dut):
    for k in range(16):
        dut.a.value = k
        await Timer(1, unit="ns")
        assert int(dut.y.value) == 15 - k
"""
SIMULATE = """
import os, pathlib, subprocess, sys
from cocotb_tools.check_results import get_results
lib = subprocess.run(["cocotb-config", "--lib-dir"], capture_output=True, text=True).stdout.strip()
env = dict(os.environ, COCOTB_TEST_MODULES="test_m", COCOTB_TOPLEVEL="m", TOPLEVEL_LANG="verilog", PYGPI_PYTHON_BIN=sys.executable)
subprocess.run(["vvp", "-M", lib, "-m", "libcocotbvpi_icarus", sys.argv[1]], env=env)
sys.exit(get_results(pathlib.Path("results.xml"))[1])
"""
STALE = {
    "a flag and a name": ("-o sim.vvp", "sim.vvp"),
    "a flag with the name": ("-o'my sim'", "'my sim'"),
    "the default name": ("", "a.out"),
}


@pytest.mark.parametrize("name", STALE)
def test_a_build_that_fails_leaves_no_program_of_an_earlier_one(grader, name):
    option, program = STALE[name]
    build = f"iverilog -g2012 -s m {option} /src/scale.v"
    script = f"{build} /src/good.v; {build} /code/rtl/m.sv; python3 /src/run.py {program}\n"
    files = {"run__sh": script, "run__py": SIMULATE, "test_m__py": COCOTB_TEST.format("")}
    problem = problem_of(
        "sh /src/run.sh", good__v=GOOD, scale__v="`timescale 1ns/1ps\n", **files
    )
    assert grade(grader, problem, RIGHT).passed
    assert grade(grader, problem, BROKEN).outcome is Outcome.COMPILE_FAILED
    if name == "the default name":
        assert (
            grade(grader, problem, f"{HEAD}below b(a, y);\nendmodule\n").outcome
            is Outcome.COMPILE_FAILED
        )


RUNNER = """
import os
from cocotb_tools.runner import get_runner
runner = get_runner("icarus")
runner.build(sources=["/code/rtl/m.sv"], hdl_toplevel="m")
runner.test(hdl_toplevel="m", test_module="test_m")
"""


def test_a_harness_that_ran_no_test_pays_nothing(grader):
    runner = RUNNER.replace(
        "import os\n", "import os\nos.environ.update(COCOTB_TEST_FILTER='none')\n"
    )
    for test, script in (
        (COCOTB_TEST.format("skip=True"), RUNNER),
        (COCOTB_TEST.format(""), runner),
    ):
        problem = problem_of("python3 /src/run.py", run__py=script, test_m__py=test)
        for text in (RIGHT, WRONG):
            verdict = grade(grader, problem, text)
            assert not verdict.passed, verdict
            assert (verdict.tests_passed, verdict.tests_total) != (
                0,
                0,
            ) or "ran no test" in verdict.reasons[0]
    assert grade(
        grader,
        problem_of("python3 /src/run.py", run__py=RUNNER, test_m__py=COCOTB_TEST.format("")),
        RIGHT,
    ).passed


BENCH = """
module tb; reg [3:0] a; wire [3:0] y; m dut(a, y);
integer i, bad = 0;
initial begin
  for (i = 0; i < 16; i = i + 1) begin a = i; #1; if (y !== ~a) bad = bad + 1; end
  if (bad == 0) $display("ALL TESTS PASSED"); else $display("FAILED %0d", bad);
  if (bad != 0) $fatal; else $finish;
end
endmodule
"""
BUILD = "iverilog -g2012 -s tb -o sim /src/tb.sv /code/rtl/m.sv || exit 1\n"
PYTHON = """
import subprocess, sys
sys.exit(subprocess.run("iverilog -g2012 -o sim /src/tb.sv /code/rtl/m.sv && vvp -n sim", shell=True).returncode)
"""
PYTEST = """
import subprocess
def test_bench():
    subprocess.run(["iverilog", "-g2012", "-o", "sim", "/src/tb.sv", "/code/rtl/m.sv"], check=True)
    assert "FAIL" not in subprocess.run(["vvp", "-n", "sim"], capture_output=True, text=True).stdout
"""
WRITES = """
import pathlib, subprocess, sys
pathlib.Path("tb.sv").write_text(pathlib.Path("/src/tb.txt").read_text())
subprocess.run(["iverilog", "-g2012", "-o", "sim", "tb.sv", "/code/rtl/m.sv"], check=True)
sys.exit("PASSED" not in subprocess.run(["vvp", "-n", "sim"], capture_output=True, text=True).stdout)
"""
SCRIPTED = {
    "an exit code": ("python3 /src/run.py", {"run__py": PYTHON}),
    "a word that must be printed": (
        "sh /src/run.sh",
        {"run__sh": BUILD + "vvp -n sim | grep -q PASSED\n"},
    ),
    "a word that must not": (
        "sh /src/run.sh",
        {"run__sh": BUILD + "vvp -n sim > log; ! grep -q FAIL log\n"},
    ),
    "a program run by its own name": (
        "sh /src/run.sh",
        {"run__sh": BUILD + "./sim | grep -q PASSED\n"},
    ),
    "a test of pytest": ("pytest /src/test_bench.py", {"test_bench__py": PYTEST}),
    "a makefile": (
        "make -f /src/run.mk",
        {"run__mk": f"all:\n\t{BUILD.strip()}\n\tvvp -n sim | grep -q PASSED\n"},
    ),
    "a bench that the script writes": (
        "python3 /src/run.py",
        {"run__py": WRITES, "tb__txt": BENCH},
    ),
}
SAYS = (
    f'{HEAD}assign y = a; initial begin $display("ALL TESTS PASSED"); $finish; end\nendmodule\n'
)


@pytest.mark.parametrize("name", SCRIPTED)
def test_a_verdict_that_a_design_can_forge_is_refused_for_every_answer(grader, name):
    command, files = SCRIPTED[name]
    problem = problem_of(command, **{"tb__sv": BENCH, **files})
    for text in (RIGHT, WRONG, SAYS):
        verdict = grade(grader, problem, text)
        assert verdict.outcome is Outcome.INFRASTRUCTURE_ERROR
        assert verdict.reasons[0].startswith(FORGEABLE)


@pytest.mark.parametrize(
    "call",
    ["verilator --binary --top tb -o s", '["verilator", "-Wall", "--cc", "--exe", "main.cpp"]'],
)
def test_a_program_of_verilator_is_refused_before_it_is_built(grader, call):
    problem = problem_of(
        "sh /src/run.sh",
        run__sh=f"{call} /src/tb.sv /code/rtl/m.sv && obj_dir/s\n",
        tb__sv=BENCH,
    )
    for text in (RIGHT, SAYS):
        verdict = grade(grader, problem, text)
        assert verdict.outcome is Outcome.INFRASTRUCTURE_ERROR
        assert "Verilator's program" in verdict.reasons[0]


@pytest.mark.parametrize("check", ["verilator --lint-only -Wall", "iverilog -g2012 -t null"])
def test_a_harness_without_a_simulation_is_judged(grader, check):
    problem = problem_of("sh /src/run.sh", run__sh=f"{check} /code/rtl/m.sv\n")
    assert grade(grader, problem, RIGHT).passed
    assert grade(grader, problem, BROKEN).outcome is Outcome.COMPILE_FAILED


def test_a_bench_beside_cocotb_tests_does_not_pass_on_its_word(grader):
    script = (
        RUNNER + "import subprocess\n" + PYTHON.replace("import subprocess, sys", "import sys")
    )
    problem = problem_of(
        "python3 /src/run.py", run__py=script, test_m__py=COCOTB_TEST.format(""), tb__sv=BENCH
    )
    assert grade(grader, problem, RIGHT).outcome is Outcome.REJECTED
    assert not grade(grader, problem, SAYS).passed


@pytest.mark.parametrize(
    ("script", "status", "word"),
    [
        (BUILD + "vvp -n sim | grep -q PASSED\n", "broken", FORGEABLE),
        ("verilator --binary /src/tb.sv\n", "unsupported", "Verilator"),
    ],
)
def test_validation_refuses_such_a_harness_by_name(grader, script, status, word):
    record = validate_problem(
        problem_of("sh /src/run.sh", run__sh=script, tb__sv=BENCH),
        grader,
        level=Level("full", 2, (1,), ("zeros",)),
    )
    assert record.status == status
    assert word in record.evidence["reason"]
