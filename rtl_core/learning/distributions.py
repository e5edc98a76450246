"""Divergences of the student's next-token distribution from the teacher's, on the teacher's k likeliest tokens of each position.

With p the student's and q the teacher's probabilities and S the k tokens, the outcomes are S and one for all others (`bucket`), with
p_o = 1 − Σ_S p and q_o = 1 − Σ_S q, or S alone, p and q each divided by their sum over S (`renormalise`). Over them:

    reverse          D = Σ p log(p / q)
    forward          D = Σ q log(q / p)
    jensen_shannon   D = β Σ q log(q / m) + (1 − β) Σ p log(p / m),   m = β q + (1 − β) p

and with g = ∂D/∂log p of each outcome as if they were free: p log(p / q) (its other part, p, cancels), −q, (1 − β) p log(p / m),

    bucket           ∂D/∂log p_v = g_v − p_v g_o / p_o
    renormalise      ∂D/∂log p_v = g_v − p̃_v Σ_S g

A bucket's divergence is at most the exact one, since it tells fewer outcomes apart. `renormalise` does not ask for the probability that the
student gives to other tokens, except in the forward direction: there q alone is divided, p is the student's own, and ∂D/∂log p_v = −q̃_v, so
that it is a cross entropy with weights that do not depend on the student.

Sources: Agarwal et al. 2024 (arXiv:2306.13649), on-policy distillation with these divergences; top-k cross entropy as in the public
tinker-cookbook.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rtl_core.learning.kl import FloatArray

Divergence = Literal["reverse", "forward", "jensen_shannon"]
Tail = Literal["bucket", "renormalise"]
Floats = NDArray[np.float64]
LEAST_REST = 1e-5
"""Smallest probability of the bucket: below it is the rounding of float32."""


class Choices(NamedTuple):
    """The k likeliest tokens at each of T positions, likeliest first, and their log-probabilities."""

    tokens_TK: NDArray[np.int64]
    logprobs_TK: NDArray[np.float32]


def outcomes(logprobs_TK: FloatArray, tail: Tail) -> Floats:
    """Log-probabilities of the outcomes: (T, K + 1) with a bucket, whose own comes last, (T, K) without."""
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
    """The divergence at each position, (T,) in nats, and its derivative by the student's log-probabilities of the tokens, (T, K).

    Args:
        student_TK, teacher_TK: log-probabilities of the same tokens, the teacher's likeliest.
        beta: β of `jensen_shannon`, in (0, 1).
        clamp: with `reverse`, log(p / q) is cut to plus or minus this many nats.
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
        pull_TK = pull[:, :-1] - p[:, :-1] * (pull[:, -1:] / p[:, -1:])
    else:
        pull_TK = pull if fixed else pull - p * pull.sum(-1, keepdims=True)
    return values.sum(-1), pull_TK
