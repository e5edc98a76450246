"""Group-relative policy optimisation that weighs hard problems by the inverse of their mean reward."""

from __future__ import annotations

from typing import ClassVar

from rtl_core.algorithms.base import ALGORITHMS
from rtl_core.algorithms.grpo import Grpo
from rtl_core.config.learning import MAX_RL
from rtl_core.learning.advantage import Scale


@ALGORITHMS.register(MAX_RL)
class MaxRl(Grpo):
    """Maximum-likelihood reinforcement learning: the gradient of log p instead of p, the probability of success.

    Needs: as in `grpo`.
    Credit: `A_i = ρ (R_i − mean(R)) / mean(|R|)`: with rewards 0 and 1 and K passes of G answers, G/K − 1 for
        a pass and −1 for the others, so that the only pass of a group counts most. At most G − 1 for rewards
        that are not negative, G with `baseline = "leave_one_out"`; 0 in a group without reward.
    Loss inputs: as in `grpo`.

    A reward for every stage keeps the mean away from 0, and with it the weight of hard problems from growing;
    `reward.weights = {tests = 1.0}` gives the paper's rewards.

    Source: Tajwar et al. 2026, "Maximum Likelihood Reinforcement Learning" (arXiv:2602.02710), there for
        rewards 0 and 1, where |R| = R.
    """

    scale: ClassVar[Scale | None] = "mean"
