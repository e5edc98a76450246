"""The harness decides, unless the interface is certain: a derived interface never keeps an answer from its tests."""

import pytest

from rtl_grader.types.answer import Answer
from rtl_grader.types.problem import Interface, InterfaceSource, Port
from rtl_grader.types.verdict import Outcome, Stage
from tests.fidelity.conftest import golden_of
from tests.nouns import COMPOSE, read_problem

RUNNER = """import os
import pytest
from cocotb_tools.runner import get_runner

@pytest.mark.parametrize("run", range(3))
def test_runner(run):
    runner = get_runner(os.environ["SIM"])
    runner.build(sources=os.environ["VERILOG_SOURCES"].split(), hdl_toplevel="inverter", always=True, timescale=("1ns", "1ns"))
    runner.test(hdl_toplevel="inverter", test_module="test_inverter")
"""
LIBRARY = """async def reset_dut(dut):
    dut.reset.value = 1


async def enable(dut):
    dut.enable.value = 1
"""
TEST = """import cocotb
import harness_library
from cocotb.triggers import Timer

@cocotb.test()
async def test_inverter(dut):
    debug = 0
    # dut.clear.value = 0
    for value in (0, 1, 0):
        dut.a.value = value
        await Timer(1, "ns")
        if debug:
            print("state", dut.state.value)
        dut._log.info("y is at 'port_y'")
        assert dut.y.value == 1 - value
"""
GOOD = "module inverter(input a, output y); assign y = ~a; endmodule\n"


def inverter(prompt="Invert.", test=TEST):
    files = {
        "docker-compose.yml": COMPOSE.format(
            "pytest -o cache_dir=/code/rundir/.cache /src/test_runner.py -v"
        ),
        "src/.env": "SIM = icarus\nTOPLEVEL = inverter\nMODULE = test_inverter\nVERILOG_SOURCES = /code/rtl/inverter.sv\n",
        "src/test_runner.py": RUNNER,
        "src/harness_library.py": LIBRARY,
        "src/test_inverter.py": test,
    }
    return read_problem(prompt=prompt, targets=("rtl/inverter.sv",), harness=files)


def graded(grader, problem, text):
    return grader.grade(problem, Answer(files={"rtl/inverter.sv": text}))


def test_names_in_dead_code_of_the_harness_are_ignored(grader):
    verdict = graded(grader, inverter(), GOOD)
    assert verdict.outcome is Outcome.PASSED, verdict.reasons
    assert verdict.mismatches == ()


@pytest.mark.parametrize("source", list(InterfaceSource))
def test_a_passing_answer_passes_whatever_no_document_and_no_harness_names(grader, source):
    ports = (
        Port(name="a", direction="input"),
        Port(name="sum", direction="output"),
        Port(name="c", direction="input"),
    )
    demand = Interface(module="inverter", ports=ports, source=source)
    verdict = graded(grader, inverter().model_copy(update={"interface": demand}), GOOD)
    assert verdict.outcome is Outcome.PASSED, verdict.reasons
    assert {stage.status for stage in verdict.stages} == {"passed"}
    assert all(
        "the harness accepts it" in reason for reason in verdict.stage(Stage.INTERFACE).reasons
    )


def test_a_wrong_header_in_the_prompt_does_not_hide_test_failures(grader):
    problem = inverter("```verilog\nmodule inverter(input a, output out);\n```")
    verdict = graded(grader, problem, GOOD.replace("~a", "a"))
    assert verdict.outcome is Outcome.INTERFACE_MISMATCH
    assert (verdict.tests_passed, verdict.tests_total) == (0, 3)
    assert any("`out`" in reason for reason in verdict.reasons)
    assert any("test_inverter" in reason for reason in verdict.reasons)


def test_a_missing_port_that_the_tests_use_is_named_once(grader):
    verdict = graded(
        grader, inverter(), GOOD.replace("input a,", "input b,").replace("~a", "~b")
    )
    assert verdict.outcome is Outcome.INTERFACE_MISMATCH
    assert verdict.reasons == ("missing port `a`: expected input, got nothing",)
    (reason,) = verdict.stage(Stage.TESTS).reasons
    assert "test_inverter" in reason


def test_a_missing_module_skips_the_harness(grader):
    verdict = graded(grader, inverter(), GOOD.replace("inverter", "other"))
    assert verdict.outcome is Outcome.INTERFACE_MISMATCH
    assert verdict.stage(Stage.SYNTAX).status == "passed"
    assert verdict.stage(Stage.TESTS).status == "skipped"


def test_the_published_answer_that_follows_the_harness_and_not_the_header_passes(
    single, grader
):
    problem = single["cvdp_copilot_data_bus_controller_0001"]
    assert "m0_read " in problem.prompt
    verdict = grader.grade(problem, golden_of(problem))
    assert verdict.outcome is Outcome.PASSED, verdict.reasons


SETS_MORE = TEST.replace(
    "dut.a.value = value\n", "dut.a.value = value\n        dut.{name}.value = value\n"
)
COUNTED = "module inverter(input a, output y); reg [3:0] count = 0; always @(a) count <= count + 1; assign y = ~a; endmodule\n"
COUNT = "Invert, and count the changes of a in `count`."


@pytest.mark.parametrize(
    ("name", "read_back", "prompt", "answer", "outcome"),
    [
        ("count", "", COUNT, COUNTED, Outcome.PASSED),
        ("count", "", "Invert.", COUNTED, Outcome.INTERFACE_MISMATCH),
        ("count", "", "Invert. Ports: `count` (input).", COUNTED, Outcome.INTERFACE_MISMATCH),
        ("count", "assert str(dut.count.value)", COUNT, COUNTED, Outcome.INTERFACE_MISMATCH),
        (
            "count",
            "assert str(getattr(dut, f'cou{chr(110)}t').value)",
            COUNT,
            COUNTED,
            Outcome.INTERFACE_MISMATCH,
        ),
        ("y", "", "Invert. Ports: `a` (input), `y` (output).", GOOD, Outcome.PASSED),
        ("y", "", "Invert. Ports: `a` and `y`.", GOOD, Outcome.INTERFACE_MISMATCH),
    ],
    ids=[
        "set inside and never read",
        "of which no document tells",
        "an input by the prompt",
        "and read",
        "and read by a computed name",
        "an output by the prompt",
        "an output by nobody",
    ],
)
def test_evidence_overrides_a_direction_guessed_from_the_harness(
    grader, name, read_back, prompt, answer, outcome
):
    problem = inverter(prompt, SETS_MORE.replace("{name}", name) + f"        {read_back}\n")
    assert problem.interface.source is InterfaceSource.HARNESS
    verdict = graded(grader, problem, answer)
    assert verdict.outcome is outcome, verdict.reasons
