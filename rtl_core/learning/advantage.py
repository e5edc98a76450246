"""Advantages: group-centred reward at every action token minus λ times the per-token reverse KL to the teacher.

For rollout i of group g with reward R_i (after credit.py) and tokens t (s, q: student's and teacher's
log-probabilities):

    A_i = R_i − mean_g(R)                  optionally the mean of the other rollouts, and divided by `scale`
    k_t = s_t − q_t                        optionally clamped to ±c
    a_t = A_i − λ Σ_{u ≥ t} γ^(u−t) k_u

Sources: GRPO (Shao et al. 2024, without the length and std terms by default, after Liu et al. 2025, "Dr.
GRPO"); RLOO (Ahmadian et al. 2024); on-policy distillation as in the public tinker-cookbook.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

import numpy as np

from rtl_core.learning.kl import FloatArray, discounted_future_sum, k1
from rtl_core.types.numbers import Floats, Floats32

Baseline = Literal["group_mean", "leave_one_out"]
Scale = Literal["none", "std", "mean"]
SURE = 0.95
"""A token with at least this probability hardly changes, whatever its advantage."""


def group_advantages(
    rewards_G: FloatArray, *, baseline: Baseline = "group_mean", scale: Scale = "none"
) -> Floats:
    """Advantages of the G rollouts of one problem; all zero when all rewards are equal.

    `leave_one_out` subtracts the mean of the other rollouts, which gives `G/(G−1)` times the group-centred value.
    `scale` divides by the group's population standard deviation (`std`), or by its mean absolute reward
    (`mean`), which bounds the result by the size of the group.
    """
    rewards_G = np.asarray(rewards_G, np.float64)
    if np.ptp(rewards_G) < 1e-12:  # rounding must not turn equal rewards into a signal
        return np.zeros_like(rewards_G)
    centred_G: Floats = rewards_G - rewards_G.mean()
    if baseline == "leave_one_out":
        centred_G = centred_G * (rewards_G.size / (rewards_G.size - 1))
    match scale:
        case "std":
            centred_G = centred_G / rewards_G.std()
        case "mean":
            centred_G = centred_G / float(np.abs(rewards_G).mean())
    return centred_G


def component_advantages(
    values_GC: FloatArray, weights_C: FloatArray, *, baseline: Baseline = "group_mean"
) -> Floats:
    """Advantages of the G rollouts of one problem from C components of their rewards: each component is
    normalised within the group by itself, and the results are summed with their weights."""
    advantages_G = np.zeros(len(values_GC))
    for values_G, weight in zip(np.asarray(values_GC).T, weights_C, strict=True):
        advantages_G += weight * group_advantages(values_G, baseline=baseline, scale="std")
    advantages_G[np.abs(advantages_G) < 1e-12] = 0.0  # components that cancel, but for rounding
    return advantages_G


def token_advantages(
    advantage: float,
    student_T: FloatArray,
    teacher_T: FloatArray | None,
    *,
    kl_weight: float,
    kl_discount: float = 0.0,
    kl_clamp: float | None = None,
    heard_T: FloatArray | None = None,
) -> Floats32:
    """Advantage of each of the T completion tokens of one rollout.

    Args:
        advantage: the rollout's scalar advantage A_i.
        student_T: log-probabilities of the sampled tokens under the policy that sampled them.
        teacher_T: the teacher's log-probabilities of the same tokens; None only with `kl_weight` 0.
        kl_weight: λ ≥ 0.
        kl_discount: γ in [0, 1]; with 0 each token gets only its own KL.
        kl_clamp: if given, clamp each token's KL to ±kl_clamp nats before summing.
        heard_T: factor of each token's KL (learning/kl.py); None means 1.

    Raises:
        ValueError: the shapes differ, or λ > 0 without a teacher.
    """
    student_T = np.asarray(student_T, np.float64)
    advantages_T = np.full(student_T.shape, advantage, np.float64)
    if kl_weight:
        if teacher_T is None:
            raise ValueError("a KL weight above 0 needs the teacher's log-probabilities")
        if np.shape(teacher_T) != student_T.shape:
            raise ValueError(
                f"teacher scored {np.shape(teacher_T)} tokens, the student sampled {student_T.shape}"
            )
        kl_T = k1(student_T, np.asarray(teacher_T))
        if kl_clamp is not None:
            kl_T = np.clip(kl_T, -kl_clamp, kl_clamp)
        if heard_T is not None:
            kl_T = kl_T * heard_T
        advantages_T = advantages_T - kl_weight * discounted_future_sum(kl_T, kl_discount)
    return advantages_T.astype(np.float32)


def kl_share(answers: Iterable[tuple[float, FloatArray, FloatArray]]) -> float:
    """Teacher's share of a batch's signal: `Σ b² / (Σ A² + Σ b²)`, from 0 (only the reward) to 1 (only the
    KL); 0 without any signal.

    A is the answer's scalar advantage, and b the KL part of a token's advantage; squares keep opposite
    signs from cancelling. Only tokens with a probability below `SURE` count, because the gradient of a
    token's log-probability goes to 0 as its probability goes to 1. Even a small λ can dominate, because
    differing rewards become rare during a run while the KL remains.

    Args:
        answers: for each answer, (A, b of its T tokens, the student's log-probabilities of the T tokens).
    """
    reward = teacher = 0.0
    for advantage, kl_T, student_T in answers:
        unsure_T = np.asarray(student_T, np.float64) < math.log(SURE)
        reward += advantage**2 * float(unsure_T.sum())
        teacher += float((np.asarray(kl_T, np.float64)[unsure_T] ** 2).sum())
    return teacher / (reward + teacher) if reward + teacher else 0.0
