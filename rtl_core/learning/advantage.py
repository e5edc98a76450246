"""Advantages: group-centred reward at every action token minus λ times the per-token reverse KL to the teacher.

For rollout i of group g with reward R_i (as it is trained on: credit.py) and tokens t (s, q: student's and teacher's
log-probabilities):

    A_i = R_i − mean_g(R)                  optionally over the others of the group only, or divided by the group's std
    k_t = s_t − q_t                        optionally clamped to ±c
    a_t = A_i − λ Σ_{u ≥ t} γ^(u−t) k_u

Sources: GRPO (Shao et al. 2024, without the length and std terms by default, after Liu et al. 2025, "Dr. GRPO"); RLOO (Ahmadian
et al. 2024); on-policy distillation as in the public tinker-cookbook.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rtl_core.learning.kl import FloatArray, discounted_future_sum, k1

Baseline = Literal["group_mean", "leave_one_out"]
SURE = 0.95
"""A token to which its policy gave at least this probability hardly moves, whatever its advantage."""


def group_advantages(
    rewards_G: FloatArray, *, baseline: Baseline = "group_mean", normalise_std: bool = False
) -> NDArray[np.float64]:
    """Advantages of the G rollouts of one problem; all zero when all rewards are equal.

    `leave_one_out` compares each rollout with the mean of the others: `G/(G−1)` times the group-centred value.
    `normalise_std` divides by the group's population standard deviation (zero spread stays zero).
    """
    rewards_G = np.asarray(rewards_G, np.float64)
    if rewards_G.ndim != 1 or rewards_G.size == 0:
        raise ValueError(f"rewards of one group must be a non-empty vector, not of shape {rewards_G.shape}")
    # Rounding must not turn equal rewards into a signal.
    spread = float(rewards_G.max() - rewards_G.min())
    if spread < 1e-12:
        return np.zeros_like(rewards_G)
    centred_G: NDArray[np.float64] = rewards_G - rewards_G.mean()
    if baseline == "leave_one_out":
        centred_G = centred_G * (rewards_G.size / (rewards_G.size - 1))
    if normalise_std:
        centred_G = centred_G / rewards_G.std()
    return centred_G


def token_advantages(
    advantage: float,
    student_T: FloatArray,
    teacher_T: FloatArray | None,
    *,
    kl_weight: float,
    kl_discount: float = 0.0,
    kl_clamp: float | None = None,
    heard_T: FloatArray | None = None,
) -> NDArray[np.float32]:
    """Advantage of each of the T completion tokens of one rollout.

    Args:
        advantage: the rollout's scalar advantage A_i.
        student_T: log-probabilities of the sampled tokens under the policy that sampled them.
        teacher_T: the teacher's log-probabilities of the same tokens; None only with `kl_weight` 0.
        kl_weight: λ ≥ 0.
        kl_discount: γ in [0, 1]; 0 charges each token its own KL alone.
        kl_clamp: if given, each token's KL is cut to ±kl_clamp nats before it is summed.
        heard_T: factor of each token's KL (learning/kl_mask.py); None: 1.

    Raises:
        ValueError: the shapes differ, or λ > 0 without a teacher.
    """
    student_T = np.asarray(student_T, np.float64)
    advantages_T = np.full(student_T.shape, advantage, np.float64)
    if kl_weight:
        if teacher_T is None:
            raise ValueError("a KL weight above 0 needs the teacher's log-probabilities")
        if np.shape(teacher_T) != student_T.shape:
            raise ValueError(f"teacher scored {np.shape(teacher_T)} tokens, the student sampled {student_T.shape}")
        kl_T = k1(student_T, np.asarray(teacher_T))
        if kl_clamp is not None:
            kl_T = np.clip(kl_T, -kl_clamp, kl_clamp)
        if heard_T is not None:
            kl_T = kl_T * heard_T
        advantages_T = advantages_T - kl_weight * discounted_future_sum(kl_T, kl_discount)
    return advantages_T.astype(np.float32)


def kl_share(answers: Iterable[tuple[float, FloatArray, FloatArray]]) -> float:
    """How much of a batch's signal is the teacher's: `Σ b² / (Σ A² + Σ b²)`, from 0 (the reward's alone) to 1 (the KL's alone).

    A is the answer's scalar advantage and b the KL's part of the token's, both squared since parts of either sign cancel in a sum.
    Only tokens count that the student was not sure of (probability under `SURE`): the gradient of a token's log-probability goes
    to 0 as its probability goes to 1. A λ that looks small can still lead here, since rewards that differ get rare as a run goes on
    and the KL stays.

    Args:
        answers: of each answer (A, b of its T tokens, the student's log-probabilities of the T tokens).

    Returns:
        The share; 0 without any signal.
    """
    reward = teacher = 0.0
    for advantage, kl_T, student_T in answers:
        unsure_T = np.asarray(student_T, np.float64) < math.log(SURE)
        reward += advantage**2 * float(unsure_T.sum())
        teacher += float((np.asarray(kl_T, np.float64)[unsure_T] ** 2).sum())
    return teacher / (reward + teacher) if reward + teacher else 0.0
