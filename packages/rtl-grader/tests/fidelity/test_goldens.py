"""Right answers pass CVDP's own harnesses, and each harness that no answer passes has a known reason."""

import re

import pytest

from rtl_grader.grading.stand_in import stand_in
from rtl_grader.types.answer import Answer
from rtl_grader.types.verdict import Outcome
from tests.fidelity.conftest import GOLDENS

# A frame of a display, and ten milliseconds of a 100 MHz clock.
SLOW = {"vga_controller_0001", "configurable_digital_low_pass_filter_0001"}
MINUTES = "digital_dice_roller_0001"
"""Not tested: its right answer takes 128 simulations and two minutes."""

NO_DEFINES = (
    "the build passes `defines={'SIMULATION': None}`, which cocotb 2's runner refuses",
    "TypeError: Can't serialize this type as an SV literal",
)
CANNOT_PASS = {
    "axis_border_gen_0001": NO_DEFINES,
    "axis_border_gen_0014": NO_DEFINES,
    "car_parking_management_0001": NO_DEFINES,
    "car_parking_management_0015": NO_DEFINES,
    "car_parking_management_0018": NO_DEFINES,
    "car_parking_management_0031": NO_DEFINES,
    "elevator_control_0006": NO_DEFINES,
    "elevator_control_0033": NO_DEFINES,
    "elevator_control_0036": NO_DEFINES,
    "cont_adder_0023": (
        "it imports `cocotb.sim_time_utils`, which cocotb 2 does not have",
        "sim_time_utils|got none",
    ),  # Icarus 13 stops before, at parameters that the stand-in lacks
    "scrambler_0018": (
        "its lint waivers match what Verilator 5.038 and later say of intra_block.sv, a given file",
        "Linting return errors",
    ),
}
"""Problem -> why no answer passes it with the tools of CVDP's image, and a pattern in the verdict's reasons."""
ANSWERED = {
    path.stem.removeprefix("cvdp_copilot_"): path.stem for path in sorted(GOLDENS.iterdir())
}
"""Short name -> id of the problems with an answer."""


@pytest.mark.corpus
@pytest.mark.parametrize(
    "golden",
    [
        pytest.param(name, marks=[pytest.mark.slow] if short in SLOW else [], id=short)
        for short, name in ANSWERED.items()
        if short != MINUTES
    ],
)
def test_a_right_answer_passes_its_harness(verdict_of, golden):
    verdict = verdict_of(golden)
    assert verdict.outcome is Outcome.PASSED, verdict.reasons
    assert verdict.tests_passed == verdict.tests_total > 0
    assert {stage.status for stage in verdict.stages} == {"passed"}


def test_every_published_problem_has_an_answer_or_a_reason(single):
    assert ANSWERED.keys().isdisjoint(CANNOT_PASS)
    assert ANSWERED.keys() | CANNOT_PASS.keys() == {
        name.removeprefix("cvdp_copilot_") for name in single
    }


@pytest.mark.corpus
@pytest.mark.parametrize("name", CANNOT_PASS)
def test_a_harness_that_no_answer_passes_has_the_known_reason(single, grader, name):
    problem = single[f"cvdp_copilot_{name}"]
    verdict = grader.grade(problem, Answer(files=stand_in(problem)))
    assert not verdict.passed
    assert any(re.search(CANNOT_PASS[name][1], reason) for reason in verdict.reasons), (
        verdict.reasons
    )
    if CANNOT_PASS[name] is NO_DEFINES:
        assert verdict.outcome is Outcome.INFRASTRUCTURE_ERROR
