"""Supervised steps before the student's own answers are worth learning from."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from rtl_core.algorithms.base import ALGORITHMS, Algorithm, Group, Inputs
from rtl_core.history.records import StoredRollout
from rtl_core.learning.credit import GroupCredit


@ALGORITHMS.register("warm_start")
class WarmStart(Algorithm):
    """Off-policy distillation: the student imitates answers of the teacher by cross entropy.

    Needs: answers sampled by the teacher, graded.
    Credit: 1 for each answer that ended by itself and, with `warm_start_passing_only`, passed; of equal ones the first. The others do
    not count. The reward is the one that was earned.
    Loss inputs: a weight of 1 at every token.

    Source: sequence-level knowledge distillation (Kim and Rush 2016, arXiv:1606.07947), here with the verdict as the filter.
    """

    signals: ClassVar[tuple[str, ...]] = ("weights",)

    def credit(self, group: Group) -> GroupCredit:
        seen: set[tuple[int, ...]] = set()
        chosen = []
        for stored in group.answers:
            wanted = stored.passed or not self.config.learning.warm_start_passing_only
            tokens_T = stored.rollout.tokens_T
            chosen.append(wanted and stored.rollout.stop_reason == "stop" and tokens_T not in seen)
            if chosen[-1]:
                seen.add(tokens_T)
        counts_G = np.array(chosen, bool)
        return GroupCredit(group.earned_G, counts_G.astype(np.float64), counts_G)

    def loss_inputs(self, answer: StoredRollout, kl_weight: float) -> Inputs:
        return self.inputs_of(len(answer.rollout.tokens_T))

    @staticmethod
    def inputs_of(n_tokens: int) -> Inputs:
        """The inputs of any answer of `n_tokens` tokens, known-good ones included, which nobody sampled."""
        return {"weights": np.ones(n_tokens, np.float32)}
