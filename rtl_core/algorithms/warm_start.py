"""Supervised steps at the beginning of a run, before RL on the student's own answers."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from rtl_core.algorithms.base import ALGORITHMS, Algorithm, Group, Inputs
from rtl_core.history.records import StoredRollout
from rtl_core.learning.credit import GroupCredit


@ALGORITHMS.register("warm_start")
class WarmStart(Algorithm):
    """Off-policy distillation: the student imitates answers of the teacher or an endpoint by cross entropy.

    Needs: answers sampled by the teacher or an endpoint, graded.
    Credit: 1 for each complete answer that, with `warm_start_passing_only`, passed; duplicates, truncated
    and other answers do not count. The reward is the earned one.
    Loss inputs: a weight of 1 at every token.

    Source: sequence-level knowledge distillation (Kim and Rush 2016, arXiv:1606.07947), here with the
        verdict as the filter.
    """

    signals: ClassVar[tuple[str, ...]] = ("weights",)

    def credit(self, group: Group) -> GroupCredit:
        first: dict[tuple[int, ...] | str, int] = {}
        any_verdict = not self.config.learning.warm_start_passing_only
        for index, stored in enumerate(group.answers):
            if (stored.passed or any_verdict) and stored.rollout.stop_reason == "stop":
                # An answer of an endpoint has no tokens.
                first.setdefault(stored.rollout.tokens_T or stored.rollout.text, index)
        counts_G = np.isin(np.arange(len(group.answers)), list(first.values()))
        return GroupCredit(group.earned_G, counts_G.astype(np.float64), counts_G)

    def loss_inputs(self, answer: StoredRollout, kl_weight: float) -> Inputs:
        return self.inputs_of(len(answer.rollout.tokens_T))

    @staticmethod
    def inputs_of(n_tokens: int) -> Inputs:
        """Inputs of any answer of `n_tokens` tokens, sampled or known-good."""
        return {"weights": np.ones(n_tokens, np.float32)}
