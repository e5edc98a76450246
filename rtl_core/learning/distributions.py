"""Divergences of the student's next-token distribution from the teacher's, on the teacher's k most likely
tokens at each position.

Let p and q be the student's and the teacher's probabilities and S the k tokens. With `bucket` the outcomes
are S and one for all other tokens, p_o = 1 − Σ_S p and q_o = 1 − Σ_S q; with `renormalise` they are only S,
and p and q are divided by their sums over S. Over the outcomes:

    reverse          D = Σ p log(p / q)
    forward          D = Σ q log(q / p)
    jensen_shannon   D = β Σ q log(q / m) + (1 − β) Σ p log(p / m),   m = β q + (1 − β) p

With g = ∂D/∂log p of each outcome as a free variable: p log(p / q) (its other part, p, cancels), −q, (1 −
β) p log(p / m),

    bucket           ∂D/∂log p_v = g_v − p_v g_o / p_o
    renormalise      ∂D/∂log p_v = g_v − p̃_v Σ_S g

The divergence with `bucket` is at most the exact one, because it distinguishes fewer outcomes.
`renormalise` ignores the student's probability of other tokens, except in the forward direction: there only
q is divided, p is unchanged, and ∂D/∂log p_v = −q̃_v, which is a cross entropy with weights that do not
depend on the student.

Sources: Agarwal et al. 2024 (arXiv:2306.13649), on-policy distillation with these divergences; top-k cross
entropy as in the public tinker-cookbook.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from rtl_core.learning.kl import FloatArray
from rtl_core.types.numbers import Floats, Floats32, Ints

Divergence = Literal["reverse", "forward", "jensen_shannon"]
Tail = Literal["bucket", "renormalise"]
LEAST_REST = 1e-5
"""Minimum probability of the bucket; smaller values are rounding errors of float32."""


class Choices(NamedTuple):
    """The k most likely tokens at each of T positions, most likely first, and their log-probabilities."""

    tokens_TK: Ints
    logprobs_TK: Floats32


def outcomes(logprobs_TK: FloatArray, tail: Tail) -> Floats:
    """Log-probabilities of the outcomes: shape (T, K + 1) with the bucket last, or (T, K) without a bucket."""
    logprobs_TK = np.asarray(logprobs_TK, np.float64)
    sum_T1 = np.exp(logprobs_TK).sum(-1, keepdims=True)
    if tail == "renormalise":
        normalised_TK: Floats = logprobs_TK - np.log(sum_T1)
        return normalised_TK
    return np.concatenate([logprobs_TK, np.log(np.maximum(1 - sum_T1, LEAST_REST))], -1)


def divergence(
    student_TK: FloatArray,
    teacher_TK: FloatArray,
    kind: Divergence,
    tail: Tail,
    *,
    beta: float = 0.5,
    clamp: float | None = None,
) -> tuple[Floats, Floats]:
    """Divergence at each position, (T,) in nats, and its derivative by the student's log-probabilities of
    the tokens, (T, K).

    Args:
        student_TK, teacher_TK: log-probabilities of the teacher's most likely tokens.
        beta: β of `jensen_shannon`, in (0, 1).
        clamp: with `reverse`, clamp log(p / q) to ± this many nats.
    """
    log_q = outcomes(teacher_TK, tail)
    fixed = kind == "forward" and tail == "renormalise"
    log_p = np.asarray(student_TK, np.float64) if fixed else outcomes(student_TK, tail)
    p, q = np.exp(log_p), np.exp(log_q)
    ratio = log_p - log_q
    if kind == "forward":
        values, pull = -q * ratio, -q
    elif kind == "reverse":
        ratio = ratio if clamp is None else np.clip(ratio, -clamp, clamp)
        values = pull = p * ratio
    else:
        log_m = np.logaddexp(np.log(beta) + log_q, np.log1p(-beta) + log_p)
        pull = (1 - beta) * p * (log_p - log_m)
        values = beta * q * (log_q - log_m) + pull
    if tail == "bucket":
        ratio_T1 = pull[:, -1:] / p[:, -1:]
        pull_TK = pull[:, :-1] - p[:, :-1] * ratio_T1
    else:
        pull_TK = pull if fixed else pull - p * pull.sum(-1, keepdims=True)
    return values.sum(-1), pull_TK
