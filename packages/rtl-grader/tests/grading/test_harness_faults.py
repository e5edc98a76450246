"""A harness that fails whatever the design is not the design's fault; what a design causes is not the harness' fault."""

import pytest

from rtl_grader.grading.evidence import test_reasons as reasons_of
from rtl_grader.grading.executors.base import Session, StepResult
from rtl_grader.grading.limits import NO_BUDGET
from rtl_grader.grading.requirements import missing_requirements
from rtl_grader.problems.sources.verilog_eval import read_verilog_eval
from rtl_grader.types.answer import Answer
from rtl_grader.types.verdict import Outcome
from rtl_grader.validation.level import Level
from rtl_grader.validation.stubs import stubs
from rtl_grader.validation.validate import validate_problem
from tests.nouns import COMPOSE, read_problem

RUN = """\
from cocotb_tools.runner import get_runner
from cocotb_tools.check_results import get_results
import os, sys
runner = get_runner(os.environ["SIM"])
runner.build(sources=["/code/rtl/m.sv"], hdl_toplevel="m", always=True, timescale=("1ns", "1ns"))
tests, failed = get_results(runner.test(hdl_toplevel="m", test_module="test_m"))
sys.exit(failed or not tests)
"""
TEST = """\
import os, random
import cocotb
from cocotb.triggers import Timer, with_timeout
{top}
@cocotb.test()
async def adds(dut):
    {first}
    dut.a.value = 1; dut.b.value = 2
    await Timer(1, "ns")
    {then}
    assert int(dut.y.value) == 3, "it does not add"
{more}
"""
HEADER = "module m(input [7:0] a, input [7:0] b, output [7:0] y);"
RIGHT = f"{HEADER} assign y = a + b; endmodule\n"
WRONG = f"{HEADER} assign y = a - b; endmodule\n"
ANOTHER = (
    "@cocotb.test()\nasync def again(dut):\n    raise RuntimeError(cocotb.plusargs.get('N'))\n"
)


def problem(
    top="",
    first="pass",
    then="pass",
    more="",
    golden=None,
    sim="icarus",
    run=RUN,
    prompt="Add:",
):
    test = TEST.format(top=top, first=first, then=then, more=more)
    settings = f"SIM = {sim}\nTOPLEVEL = m\nVERILOG_SOURCES = /code/rtl/m.sv\n"
    harness = {
        "src/run.py": run,
        "src/test_m.py": test,
        "src/.env": settings + "PYTHONPATH = /src\n",
    }
    return read_problem(
        prompt=f"{prompt}\n```verilog\n{HEADER}\n```\n", golden=golden and {"rtl/m.sv": golden},
        harness={"docker-compose.yml": COMPOSE.format("python3 /src/run.py"), **harness},
    )  # fmt: skip


def grade(grader, problem, text):
    return grader.grade(problem, Answer(files={"rtl/m.sv": text}))


FAULTS = {
    "a division at the top": ({"top": "ratio = 1 / 0"}, "ZeroDivisionError"),
    "a missing setting at the top": ({"top": "N = int(cocotb.plusargs['N'])"}, "KeyError: 'N'"),
    "a missing setting in the test": (
        {"first": "n = int(cocotb.plusargs['N'])"},
        "KeyError: 'N'",
    ),
    "a missing setting after some time": (
        {"then": "n = os.environ['NUMBER']"},
        "KeyError: 'NUMBER'",
    ),
    "a setting that is no number": ({"first": "n = int(os.getenv('N'))"}, "TypeError: int()"),
    "a missing module": ({"then": "import no_such_module"}, "no_such_module"),
    "a missing file": ({"top": "open('/src/golden.hex')"}, "golden.hex"),
    "a name that is not defined": ({"first": "reset(dut)"}, "name 'reset' is not defined"),
    "a time below the precision": (
        {"then": "await Timer(1, 'ps')"},
        "Unable to accurately represent 1(ps)",
    ),
    "one test of two": ({"more": ANOTHER}, "RuntimeError"),
    "an error of the runner": ({"run": RUN.replace("always=True", "allways=True")}, "allways"),
}


@pytest.mark.parametrize(("given", "said"), FAULTS.values(), ids=FAULTS)
def test_a_harness_that_fails_for_every_design_is_broken_and_no_design_is_blamed(
    grader, given, said
):
    for text in (RIGHT, WRONG):
        verdict = grade(grader, problem(**given), text)
        assert verdict.outcome is Outcome.INFRASTRUCTURE_ERROR, verdict.reasons
        assert verdict.reasons[0].startswith("the harness fails by itself")
        assert said in verdict.reasons[0]
    record = validate_problem(
        problem(**given), grader, level=Level("quick", 0, (1,), ("zeros",))
    )
    assert record.status == ("unsupported" if "module" in said else "broken")
    assert said in record.evidence["reason"]


DESIGNS = {
    "it subtracts": ({}, WRONG, "AssertionError: it does not add"),
    "its output is x": ({}, f"{HEADER} endmodule\n", "ValueError"),
    "it has no such object": ({"first": "dut.inner.value"}, RIGHT, "no child object named inner"),
    "a check fails at once": ({"first": "assert len(dut.y) == 9"}, RIGHT, "AssertionError"),
    "it never answers": ({"then": "await with_timeout(Timer(99, 'ns'), 9, 'ns')"}, RIGHT, "SimTimeoutError"),
    "nothing was collected": ({"then": "x = [v for v in [int(dut.y.value)] if v == 3][0]"}, WRONG, "IndexError"),
    "its message has a mistake": ({"then": "if int(dut.y.value) != 3: raise NoName()"}, WRONG, "NameError"),
    "it says so itself": (
        {},
        f"{HEADER} initial begin $display(\"Traceback (most recent call last):\\nKeyError: 'N'\"); $finish; end endmodule\n",
        "SimFailure",
    ),
    "a number does not fit": ({"first": "dut.a.value = 256"}, RIGHT, "out of range"),
}  # fmt: skip


@pytest.mark.parametrize(("given", "text", "said"), DESIGNS.values(), ids=DESIGNS)
def test_a_design_is_blamed_for_what_designs_cause(grader, given, text, said):
    verdict = grade(grader, problem(**given), text)
    assert verdict.outcome is Outcome.TESTS_FAILED, verdict.reasons
    assert said in verdict.reasons[0]


def test_a_linter_that_refuses_every_answer_so_far_does_not_excuse_one(grader):
    given = problem()
    lint = "import sys\nprint('E   ValueError: Linting returned errors.')\nsys.exit('+' not in open('/code/rtl/m.sv').read())\n"
    compose = given.harness["docker-compose.yml"]
    service = (
        compose.split("services:\n")[1].replace("direct", "lint").replace("run.py", "lint.py")
    )
    files = {**given.harness, "docker-compose.yml": compose + service, "src/lint.py": lint}
    given = given.model_copy(update={"harness": files})
    assert grade(grader, given, RIGHT).passed
    assert grade(grader, given, WRONG).outcome is Outcome.TESTS_FAILED
    assert grade(grader, given, WRONG.replace("a - b", "8'd3")).outcome is Outcome.TESTS_FAILED


def test_an_answer_is_not_blamed_for_what_the_golden_answer_fails_in_too(grader):
    then = "assert int(dut.a.value) == 2, 'the bench is wrong'"
    for text in (RIGHT, WRONG):
        verdict = grade(grader, problem(then=then, golden=RIGHT), text)
        assert verdict.outcome is Outcome.INFRASTRUCTURE_ERROR
        assert "the bench is wrong" in verdict.reasons[0]
    broken = problem(then=then, golden=RIGHT)
    grader.known_good.golden[broken.fingerprint] = (
        NO_BUDGET  # as after an answer that ran out of CPU time
    )
    assert grade(grader, broken, WRONG).outcome is Outcome.INFRASTRUCTURE_ERROR
    assert grade(grader, problem(golden=RIGHT), WRONG).outcome is Outcome.TESTS_FAILED
    record = validate_problem(
        problem(then=then, golden=RIGHT), grader, level=Level("quick", 0, (1,), ("zeros",))
    )
    assert record.status == "broken"
    assert "the golden answer fails: tests failed" in record.evidence["reason"]


def test_a_harness_that_fails_under_some_seeds_does_not_refuse_a_right_answer(grader):
    draws = "random.seed(os.environ['COCOTB_RANDOM_SEED']); x = cocotb.plusargs['N'] if random.random() < .5 else 0"
    verdict = grade(grader, problem(first=draws), RIGHT)
    assert verdict.outcome in (Outcome.PASSED, Outcome.INFRASTRUCTURE_ERROR), verdict.reasons


def test_a_missing_port_that_the_specification_does_not_name_is_said_to_be_its_fault(grader):
    named = RIGHT.replace("input [7:0] b", "input [7:0] second").replace("a + b", "a + second")
    given = problem(golden=named)
    given = given.model_copy(
        update={
            "harness": {p: t.replace("dut.b", "dut.second") for p, t in given.harness.items()}
        }
    )
    assert grade(grader, given, named).passed
    verdict = grade(grader, given, RIGHT)
    assert verdict.outcome is Outcome.INTERFACE_MISMATCH
    assert verdict.reasons[0] == "the specification does not name the port second"
    other = grade(grader, given, named.replace("[7:0] a", "[7:0] c"))
    assert not any("specification" in reason for reason in other.reasons)


LOG = """\
   3.00ns INFO     cocotb.regression                  adds failed
                                                      Traceback (most recent call last):
                                                        File "/src/test_m.py", line 8, in adds
                                                          raise Mismatch("1+2 gives 255")
                                                      {exception}
   3.00ns INFO     cocotb.regression                  ** TESTS=1 PASS=0 FAIL=1 SKIP=0
"""
CHAINED = """\
Traceback (most recent call last):
  File "run.py", line 1, in <module>
KeyError: 'N'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "run.py", line 3, in <module>
bench.errors.NoSetting: N is not set
NoneType: None
"""


@pytest.mark.parametrize(
    "exception",
    [
        "cocotb.result.TestFailure: 1+2 gives 255", "cocotb.result.SimTimeoutError", "test_m.Mismatch: 1+2 gives 255",
        "AssertionError: 1+2 gives 255", "subprocess.TimeoutExpired: Command 'x' timed out after 3 seconds",
    ],
)  # fmt: skip
def test_the_message_of_a_bench_for_cocotb_1_is_the_first_reason(exception):
    test = {
        "name": "test_m.adds",
        "status": "failed",
        "message": "Test failed with RANDOM_SEED=0",
    }
    step = StepResult(
        "t",
        1,
        LOG.format(exception=exception),
        1.0,
        sessions=(Session("r", True, False, (test,)),),
    )
    assert reasons_of(step)[0] == exception


@pytest.mark.parametrize(
    ("output", "reasons"),
    [
        (LOG.format(exception="subprocess.CalledProcessError: Command 'make' returned 2."), ("subprocess.CalledProcessError: Command 'make' returned 2.",)),
        (CHAINED, ("bench.errors.NoSetting: N is not set", "KeyError: 'N'")),
        ("subprocess.CalledProcessError: Command 'make' returned 2.\nbye", ("subprocess.CalledProcessError: Command 'make' returned 2.",)),
        ("INTERNALERROR> Traceback (most recent call last):\nINTERNALERROR>   File 'x'\nINTERNALERROR> PermissionError: no\n", ("PermissionError: no",)),
        ("checking\nNoneType: None\n", ("checking",)),
        ("ERROR: tb.sv:3: no\n       Time: 20  Scope: tb\n", ("ERROR: tb.sv:3: no",)),
        ("[0] %Fatal: t.v:5: no\n%Error: t.v:5: Verilog $stop\nAborting...\n", ("[0] %Fatal: t.v:5: no",)),
        ("/code/rtl/gray.v:1: syntax error\n", ("rtl/gray.v:1: syntax error",)),
    ],
)  # fmt: skip
def test_a_failed_service_is_explained_by_its_exceptions(output, reasons):
    assert reasons_of(StepResult("t", 1, output, 1.0)) == reasons


@pytest.mark.parametrize(
    ("sim", "run", "version", "fits"),
    [
        ("verilator", RUN, "5.006", False),
        ("verilator", RUN, "5.048", True),
        ("verilator", RUN, "unknown", True),
        ("icarus", RUN, "5.006", True),
        (
            "icarus",
            RUN.replace('os.environ["SIM"]', 'os.getenv("SIM", "verilator")'),
            "5.006",
            True,
        ),
        ("verilator", RUN.replace("cocotb_tools.runner", "cocotb.runner"), "5.006", True),
    ],
)
def test_a_verilator_that_cocotb_2_cannot_use_is_a_missing_requirement(sim, run, version, fits):
    lacking = missing_requirements(
        problem(sim=sim, run=run).harness,
        {"verilator": version, "iverilog": "12"},
        lambda _: True,
    )
    assert (not lacking) is fits
    assert fits or (version in lacking[0] and "toolchain install" in lacking[0])


def test_an_answer_that_fails_its_tests_is_blamed_although_the_golden_answer_does_not_compile(
    grader, data
):
    problems = {
        problem.id: problem for problem in read_verilog_eval(data / "verilog-eval").problems
    }
    given = problems["verilog_eval_Prob151_review2015_fsm"]  # Icarus 11 cannot read its cast
    for files in stubs(given).of(["zeros"]).values():
        assert grader.grade(given, Answer(files=files)).outcome is Outcome.TESTS_FAILED


BENCH = """\
module bench;
  typedef union tagged {void A; logic [7:0] B;} t;
  t x; wire [7:0] y;
  m dut(.a(8'd1), .b(8'd2), .y(y));
  initial begin x = tagged B (8'd3); #1 if (y === x.B) $display("all good"); $finish; end
endmodule
"""
BENCH_RUN = """\
import subprocess, sys
subprocess.run(["iverilog", "-g2012", "-s", "bench", "-o", "sim", "/src/bench.sv", "/code/rtl/m.sv"], check=True)
sys.exit("all good" not in subprocess.run(["vvp", "-n", "sim"], stdout=subprocess.PIPE, text=True).stdout)
"""


def test_a_bench_that_is_too_new_for_the_tool_makes_its_problem_unsupported(grader):
    given = problem(golden=RIGHT, run=BENCH_RUN)
    harness = {
        path: text for path, text in given.harness.items() if path != "src/test_m.py"
    } | {"src/bench.sv": BENCH}
    given = given.model_copy(update={"harness": harness})
    record = validate_problem(given, grader, level=Level("quick", 0, (1,), ("zeros",)))
    assert record.status == "unsupported", record.evidence
    assert (
        f"iverilog {grader.tools['iverilog']} cannot read valid SystemVerilog"
        in record.evidence["reason"]
    )
    wrong = {**harness, "src/bench.sv": BENCH.replace("initial begin", "initial begin begin")}
    record = validate_problem(
        given.model_copy(update={"harness": wrong}),
        grader,
        level=Level("quick", 0, (1,), ("zeros",)),
    )
    assert record.status == "broken"


NEW = f"{HEADER} typedef union tagged {{void A; logic [7:0] B;}} t; t x; always_comb x = tagged B (a + b); assign y = x.B; endmodule\n"


@pytest.mark.parametrize(
    ("text", "is_valid"),
    [
        (NEW, True),
        (NEW.replace("= tagged", "= tagged tagged"), False),
        (f"{HEADER} assign y = a + b endmodule\n", False),
        (f"{HEADER} assign y = (a + b)[7:0]; endmodule\n", False),
        (f"{HEADER} always @* y = a + c; endmodule\n", False),
    ],
)
def test_a_text_that_is_valid_but_too_new_for_the_tool_is_told_from_a_wrong_one(
    grader, text, is_valid
):
    verdict = grade(grader, problem(), text)
    assert verdict.outcome is Outcome.COMPILE_FAILED
    assert ("cannot read valid SystemVerilog (slang can)" in verdict.reasons[0]) is is_valid
    if is_valid:
        assert grader.tools["iverilog"] in verdict.reasons[0]
        record = validate_problem(
            problem(golden=text), grader, level=Level("quick", 0, (1,), ("zeros",))
        )
        assert record.status == "unsupported"
        assert "rtl-grader toolchain install" in record.evidence["reason"]
