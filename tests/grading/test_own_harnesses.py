"""Harnesses that users write themselves: scripts that call the tools as they like. A wrong design passes none of them."""

import pytest

from rtl_core.problems.cvdp import problem_from_record
from rtl_core.types.answer import Answer
from rtl_core.types.verdict import Outcome

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
    problem = problem_of("sh /src/run.sh", good__v=GOOD, scale__v="`timescale 1ns/1ps\n", **files)
    assert grade(grader, problem, RIGHT).passed
    assert grade(grader, problem, BROKEN).outcome is Outcome.COMPILE_FAILED
    if name == "the default name":
        assert grade(grader, problem, f"{HEAD}below b(a, y);\nendmodule\n").outcome is Outcome.COMPILE_FAILED


RUNNER = """
import os
from cocotb_tools.runner import get_runner
runner = get_runner("icarus")
runner.build(sources=["/code/rtl/m.sv"], hdl_toplevel="m")
runner.test(hdl_toplevel="m", test_module="test_m")
"""


def test_a_harness_that_ran_no_test_pays_nothing(grader):
    runner = RUNNER.replace("import os\n", "import os\nos.environ.update(COCOTB_TEST_FILTER='none')\n")
    for test, script in ((COCOTB_TEST.format("skip=True"), RUNNER), (COCOTB_TEST.format(""), runner)):
        problem = problem_of("python3 /src/run.py", run__py=script, test_m__py=test)
        for text in (RIGHT, WRONG):
            verdict = grade(grader, problem, text)
            assert not verdict.passed, verdict
            assert (verdict.tests_passed, verdict.tests_total) != (0, 0) or "ran no test" in verdict.reasons[0]
    assert grade(
        grader, problem_of("python3 /src/run.py", run__py=RUNNER, test_m__py=COCOTB_TEST.format("")), RIGHT
    ).passed
