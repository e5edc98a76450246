"""Reward terms over verdicts."""

from __future__ import annotations

import pytest

from rtl_core.errors import InfrastructureError
from rtl_core.learning.reward import reward
from rtl_core.types.verdict import Outcome, Stage, StageResult, Verdict

WEIGHTS = {"format": 0.1, "interface": 0.2, "syntax": 0.3, "tests": 1.0}


def verdict(outcome: Outcome, passed: str, failed: str = "", tests: tuple[int, int] = (0, 0)) -> Verdict:
    stages = [StageResult(stage=Stage(name), status="passed") for name in passed.split()]
    stages += [StageResult(stage=Stage(name), status="failed") for name in failed.split()]
    return Verdict(
        outcome=outcome, stages=tuple(stages), tests_passed=tests[0], tests_total=tests[1], executor="bubblewrap"
    )


def test_a_passed_answer_earns_every_term() -> None:
    got = reward(verdict(Outcome.PASSED, "format interface syntax tests", tests=(3, 3)), WEIGHTS)
    assert got.total == pytest.approx(1.6)
    assert got.terms["tests"] == (1.0, 1.0)


def test_a_wrong_interface_that_compiles_earns_format_and_syntax_only() -> None:
    got = reward(verdict(Outcome.INTERFACE_MISMATCH, "format syntax", "interface"), WEIGHTS)
    assert got.total == pytest.approx(0.4)


def test_the_seeds_reward_is_the_default_with_the_interface_at_zero() -> None:
    got = reward(verdict(Outcome.PASSED, "format interface syntax tests"), {**WEIGHTS, "interface": 0.0})
    assert got.total == pytest.approx(1.4)


def test_the_fraction_pays_passed_tests_but_never_fully_without_a_pass() -> None:
    weights = {"tests_fraction": 1.0}
    assert reward(verdict(Outcome.TESTS_FAILED, "format interface syntax", "tests", (3, 4)), weights).total == 0.75
    # All cocotb tests pass but the lint service fails: not a pass, so not a full score.
    assert reward(verdict(Outcome.TESTS_FAILED, "format interface syntax", "tests", (4, 4)), weights).total == 0.75
    assert reward(verdict(Outcome.COMPILE_FAILED, "format", "syntax"), weights).total == 0.0


def test_a_rejected_answer_earns_nothing() -> None:
    assert reward(verdict(Outcome.REJECTED, "format interface syntax"), WEIGHTS).total == 0.0


def test_an_infrastructure_error_is_never_a_reward() -> None:
    with pytest.raises(InfrastructureError):
        reward(verdict(Outcome.INFRASTRUCTURE_ERROR, ""), WEIGHTS)
