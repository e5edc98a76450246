"""The table of harnesses: how far each gets, derived from its verdict."""

import pytest

from benchmarks.harnesses import Kind, kind
from rtl_grader.grading.evidence import HARNESS_FAILED
from rtl_grader.grading.stand_in import stand_in
from rtl_grader.types.answer import Answer
from rtl_grader.types.problem import Problem
from rtl_grader.types.verdict import Outcome, Stage, StageResult, Verdict


def verdict(outcome, status="skipped", reasons=(), said=()):
    stages = (StageResult(stage=Stage.TESTS, status=status, reasons=reasons),)
    return Verdict(outcome=outcome, stages=stages, reasons=said, executor="x")


IMPORT = "test_m.test: ImportError: cannot import name 'sim_time_utils' from 'cocotb'"
CHECK = "test_m.test: AssertionError: expected 1, got 0"
MISSING = "test_m.test: AttributeError: m contains no child object named q"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (verdict(Outcome.PASSED, "passed"), Kind.PASSES),
        (verdict(Outcome.TESTS_FAILED, "failed", (CHECK,)), Kind.JUDGES),
        (verdict(Outcome.TESTS_FAILED, "failed", (CHECK, IMPORT)), Kind.JUDGES),
        (verdict(Outcome.INTERFACE_MISMATCH, "skipped", (MISSING,)), Kind.JUDGES),
        (verdict(Outcome.TESTS_FAILED, "failed", (IMPORT,)), Kind.OWN_CODE),
        (verdict(Outcome.COMPILE_FAILED, said=("rtl/m.sv:1: syntax error",)), Kind.COMPILER),
        (verdict(Outcome.TIMEOUT, "failed", ("direct ran longer than 60 s",)), Kind.TIME),
        (
            verdict(
                Outcome.INFRASTRUCTURE_ERROR, said=("the harness needs the program yosys",)
            ),
            Kind.NEEDS,
        ),
        (
            verdict(Outcome.INFRASTRUCTURE_ERROR, said=(f"{HARNESS_FAILED}: TypeError",)),
            Kind.BEFORE,
        ),
        (verdict(Outcome.INFRASTRUCTURE_ERROR, said=("the sandbox ended",)), Kind.OTHER),
    ],
)
def test_how_far_a_harness_got(given, expected):
    assert kind(given) is expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [("secure_ALU_0001", Kind.JUDGES), ("elevator_control_0006", Kind.BEFORE)],
)
def test_harnesses_that_run_are_distinguished_from_those_that_cannot(
    single, grader, name, expected
):
    problem = single[f"cvdp_copilot_{name}"]
    assert kind(grader.grade(problem, Answer(files=stand_in(problem)))) is expected


def test_a_harness_that_fails_in_its_own_code_is_recognised(single, grader):
    problem = single["cvdp_copilot_secure_ALU_0001"]
    test = "from cocotb import no_such_name\n" + problem.harness["src/test_alu_seq.py"]
    broken = Problem(
        **(dict(problem) | {"harness": {**problem.harness, "src/test_alu_seq.py": test}})
    )
    assert kind(grader.grade(broken, Answer(files=stand_in(problem)))) is Kind.BEFORE


def test_a_stand_in_has_clocks_of_one_bit_and_the_parameters_that_the_harness_sets(single):
    (text,) = stand_in(single["cvdp_copilot_secure_ALU_0001"]).values()
    assert "input i_clk" in text
    (text,) = stand_in(single["cvdp_copilot_prbs_gen_0003"]).values()
    assert all(
        f"parameter {name} = 8" in text
        for name in ("CHECK_MODE", "POLY_LENGTH", "POLY_TAP", "WIDTH")
    )


def test_programs_that_only_unused_files_call_are_not_required(single, grader):
    problem = single["cvdp_copilot_binary_to_gray_0013"]
    assert "yosys" in problem.harness["src/synth.py"]
    assert "synth" not in problem.harness["docker-compose.yml"]
    assert not [word for word in grader.lacking(problem) if "yosys" in word]
