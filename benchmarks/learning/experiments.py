"""What the matrix tries and the product does not have: an algorithm, a reward term, a source. `learning.algorithm`, `reward.plugins` and
the sources' `kind` name this module."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from rtl_core.algorithms.grpo import Grpo
from rtl_core.history.records import StoredRollout
from rtl_core.learning.reward import Graded, term
from rtl_core.problems.sources.starter import StarterSource
from rtl_core.problems.starter import Split
from rtl_core.types.problem import Problem
from rtl_core.types.verdict import MismatchKind, Outcome, Stage

LEAST_SURE = 0.2
_OUTPUT_FAILED = re.compile(r"(\w+) is [01xzXZ]+, expected [01]+")
"""How the starter harness names the output that failed a check, with what it drove."""


class LeastSure(Grpo):
    """GRPO on the tokens that the student was least sure of.

    Credit: as in `grpo`.
    Loss inputs: as in `grpo`, but 0 beside the LEAST_SURE of an answer's T tokens (rounded up) with the lowest log-probability when they
    were sampled. The source keeps the tokens at which the whole distribution has the highest entropy; a sampler tells the
    log-probability of the sampled token alone, whose negative has that entropy as its mean.

    Source: Wang et al. 2025, "Beyond the 80/20 rule" (arXiv:2506.01939).
    """

    def advantages_T(self, answer: StoredRollout, advantage: float, kl_weight: float) -> NDArray[np.float32]:
        advantages_T = super().advantages_T(answer, advantage, kl_weight)
        logprobs_T = np.array(answer.rollout.logprobs_T)
        kept = np.argsort(logprobs_T, kind="stable")[: -(-len(logprobs_T) // round(1 / LEAST_SURE))]
        out_T = np.zeros_like(advantages_T)
        out_T[kept] = advantages_T[kept]
        return out_T


@term("signals")
def signals(answer: Graded) -> float:
    """Share of the demanded ports with which the grader found nothing wrong; an answer that does not compile or ends late has none.

    A port is wrong that is missing, or differs in direction or width, or is an output that a failing check of the starter
    harness names. Each port that is not asked for counts as one more wrong port.
    """
    verdict, interface = answer.verdict, answer.problem.interface
    if verdict.passed:
        return 1.0
    if verdict.outcome not in (Outcome.TESTS_FAILED, Outcome.INTERFACE_MISMATCH) or interface is None:
        return 0.0
    if any(mismatch.kind is MismatchKind.WRONG_MODULE for mismatch in verdict.mismatches):
        return 0.0
    wrong = {mismatch.name for mismatch in verdict.mismatches}
    for reason in verdict.stage(Stage.TESTS).reasons:
        wrong |= set(_OUTPUT_FAILED.findall(reason))
    names = {port.name for port in interface.ports}
    total = len(names | wrong)
    # A failed answer whose failing check names no port is not right as a whole.
    return min(total - len(wrong), total - 1) / total


class FewKnownGood(StarterSource):
    """The starter set with a harness for every training problem and known-good answers for few."""

    known_good: int = Field(ge=0)
    """How many training problems keep their known-good answer."""

    def make(self, split: Split, count: int, seed: int) -> list[Problem]:
        problems = super().make(split, count, seed)
        keep = self.known_good if split == "train" else count
        return problems[:keep] + [problem.model_copy(update={"golden": None}) for problem in problems[keep:]]
