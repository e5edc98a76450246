"""Credit: rewards and advantages that the answers of a group are trained on.

For answer i of a group of G answers to one problem, with earned reward E_i (reward.py):

    R_i = E_i − P_i                       P: `overlong_penalty`, with `penalise`
    A_i = ρ (R_i − baseline)              ρ: `reward_weight`; baseline and spread over the answers that
    count (advantage.py)

Three settings treat answers that are truncated at the token limit: `keep` uses their reward unchanged;
`mask` excludes them from the baseline and the loss; `penalise` subtracts a penalty that grows over a buffer
before the limit, so that the model learns to be brief:

    0                                         length ≤ limit − buffer
    p (length − (limit − buffer)) / buffer    in between
    p                                         truncated

Three settings treat doubtful passes (`rtl_grader.equivalence`): `keep` uses their reward unchanged, `mask`
excludes them as above, and `zero` sets E_i = 0.

With `components` the advantage is computed from the terms of the reward, of which the penalty is one.

Source: DAPO (Yu et al. 2025, arXiv:2503.14476), "overlong filtering" and "soft overlong punishment"
    (section 3.4), there with p = 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from rtl_core.learning.advantage import (
    Baseline,
    Scale,
    component_advantages,
    group_advantages,
)
from rtl_core.learning.kl import FloatArray
from rtl_core.types.numbers import Bools, Floats

Truncated = Literal["keep", "mask", "penalise"]
Doubtful = Literal["keep", "mask", "zero"]


@dataclass(frozen=True)
class Credit:
    """Credit of one answer."""

    reward: float
    """R: the reward in the baseline."""
    advantage: float
    """A: the scalar advantage of every token."""
    counts: bool
    """Whether baseline and loss include the answer; False if it is masked."""


class GroupCredit(NamedTuple):
    """Credit of the G answers of a group; all arrays have shape (G,)."""

    rewards_G: Floats
    advantages_G: Floats
    counts_G: Bools

    def answers(self) -> list[Credit]:
        columns = (column_G.tolist() for column_G in self)
        return [Credit(*answer) for answer in zip(*columns, strict=True)]


@dataclass(frozen=True)
class Rules:
    """Settings of the formulas above."""

    limit: int
    """Maximum completion length, in tokens."""
    truncated: Truncated = "keep"
    penalty: float = 0.0
    """With `penalise`: penalty of a truncated answer, in units of reward."""
    buffer: int = 0
    """With `penalise`: number of tokens before the limit over which the penalty rises."""
    doubtful: Doubtful = "keep"
    baseline: Baseline = "group_mean"
    scale: Scale = "none"
    reward_weight: float = 1.0


class Components(NamedTuple):
    """The C weighted terms of the rewards of G answers."""

    values_GC: Floats
    weights_C: Floats

    def without(self, none_G: Bools, penalty_G: Floats, penalty: float) -> Components:
        """Return the components with every term 0 for the answers of `none_G`, and the penalty as another term."""
        values_GC = np.where(none_G[:, None], 0.0, self.values_GC)
        values_GC = np.column_stack([values_GC, -penalty_G])
        return Components(values_GC, np.append(self.weights_C, penalty))


def credit(
    earned_G: FloatArray | Sequence[float],
    lengths_G: Sequence[int],
    cut_G: Sequence[bool],
    rules: Rules,
    doubtful_G: Sequence[bool] | None = None,
    components: Components | None = None,
) -> GroupCredit:
    """Credit of the G answers of one group, by the formulas above. A masked answer has advantage 0 and no KL.

    Args:
        earned_G: rewards as recorded.
        lengths_G: tokens of each completion.
        cut_G: whether each was truncated at `rules.limit` tokens.
        doubtful_G: whether each is a doubtful pass; None if no pass was audited.
        components: the terms of the rewards, to normalise each by itself; None: only their sum.
    """
    rewards_G: Floats = np.array(earned_G, np.float64)
    doubts_G = np.zeros(len(rewards_G), bool)
    if doubtful_G is not None and rules.doubtful != "keep":
        doubts_G = np.asarray(doubtful_G, bool)
    penalty_G = np.zeros(len(rewards_G))
    if rules.doubtful == "zero":
        rewards_G[doubts_G] = 0.0
    counts_G: Bools = np.ones(len(rewards_G), bool)
    if rules.truncated == "mask":
        counts_G = ~np.asarray(cut_G, bool)
    elif rules.truncated == "penalise":
        penalty_G = overlong_penalty(lengths_G, cut_G, rules)
        rewards_G = rewards_G - penalty_G
    if rules.doubtful == "mask":
        counts_G = counts_G & ~doubts_G
    advantages_G = np.zeros_like(rewards_G)
    if counts_G.any() and components is not None:
        values_GC, weights_C = components.without(doubts_G, penalty_G, rules.penalty)
        advantages_G[counts_G] = component_advantages(
            values_GC[counts_G], weights_C, baseline=rules.baseline
        )
    elif counts_G.any():
        advantages_G[counts_G] = group_advantages(
            rewards_G[counts_G], baseline=rules.baseline, scale=rules.scale
        )
    return GroupCredit(rewards_G, rules.reward_weight * advantages_G, counts_G)


def overlong_penalty(lengths_G: Sequence[int], cut_G: Sequence[bool], rules: Rules) -> Floats:
    """Penalty of each of G answers, from 0 to `rules.penalty`; with a buffer of 0, only truncated answers have one."""
    limit, buffer = rules.limit, rules.buffer
    over_G = np.asarray(lengths_G, np.float64) - (limit - buffer)
    share_G = np.clip(over_G / buffer, 0.0, 1.0) if buffer else np.zeros(len(lengths_G))
    return rules.penalty * np.where(np.asarray(cut_G, bool), 1.0, share_G)
