"""Reward: named, weighted terms over a verdict.

The total is `Σ weight_n · value_n` with every value in [0, 1]. Terms are stored beside the total, so that other weights
can be tried later on stored rollouts. The KL to the teacher never enters here: it is a per-token penalty (advantage.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pydantic import BaseModel, ConfigDict

from rtl_core.errors import InfrastructureError
from rtl_core.types.verdict import Outcome, Stage, Verdict


class Reward(BaseModel):
    """A reward and how it came about: `total` is Σ weight × value over `terms`, term name -> (weight, value)."""

    model_config = ConfigDict(frozen=True)
    total: float
    terms: dict[str, tuple[float, float]]


def _stage_passed(stage: Stage) -> Callable[[Verdict], float]:
    return lambda verdict: float(verdict.stage(stage).status == "passed")


def _tests_all(verdict: Verdict) -> float:
    """1 when every service of the harness accepted the answer, as CVDP counts."""
    return float(verdict.passed)


def _tests_fraction(verdict: Verdict) -> float:
    """Passed tests of total; 1 only for a verdict that passed as a whole."""
    if verdict.passed:
        return 1.0
    if verdict.tests_total == 0:
        return 0.0
    # A service that fails without failing a test (lint, synthesis) must not read as a full score.
    return min(verdict.tests_passed, verdict.tests_total - 1) / verdict.tests_total


TERMS: dict[str, Callable[[Verdict], float]] = {
    "format": _stage_passed(Stage.FORMAT),
    "interface": _stage_passed(Stage.INTERFACE),
    "syntax": _stage_passed(Stage.SYNTAX),
    "tests": _tests_all,
    "tests_fraction": _tests_fraction,
}
"""Every known term. A new one is a function of a verdict into [0, 1] and a line here."""


def reward(verdict: Verdict, weights: Mapping[str, float]) -> Reward:
    """The reward of a verdict under `weights` (term name -> weight).

    Raises:
        InfrastructureError: the verdict says that grading itself failed; that is never a reward.
        KeyError: a weight names no known term.
    """
    if verdict.outcome is Outcome.INFRASTRUCTURE_ERROR:
        raise InfrastructureError(
            f"a verdict without a judgement has no reward: {'; '.join(verdict.reasons) or 'no reason given'}",
            "grade the rollout again",
        )
    rejected = verdict.outcome is Outcome.REJECTED
    terms = {name: (weight, 0.0 if rejected else TERMS[name](verdict)) for name, weight in weights.items()}
    return Reward(total=sum(weight * value for weight, value in terms.values()), terms=terms)
