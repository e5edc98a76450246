"""Per-token estimators of the reverse KL divergence KL(student ‖ teacher) on the student's own samples, and
filters of it.

For a token sampled from the student with log-probability s, and log-probability q under the teacher, let r
= exp(q − s):

- k1 = s − q           unbiased, can be negative, used in the advantage
- k2 = (s − q)² / 2    biased, low variance
- k3 = (r − 1) − log r unbiased, never negative

Source: J. Schulman, "Approximating KL divergence", 2020.

A filter is 1 or 0 for each token; the KL of a token is multiplied by all filters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from difflib import SequenceMatcher

import numpy as np
from numpy.typing import NDArray

from rtl_core.types.numbers import Floats

FloatArray = NDArray[np.floating]


def k1(student_T: FloatArray, teacher_T: FloatArray) -> Floats:
    """`s − q` per token, in nats; shapes (T,) -> (T,)."""
    return np.asarray(student_T, np.float64) - np.asarray(teacher_T, np.float64)


def k2(student_T: FloatArray, teacher_T: FloatArray) -> Floats:
    """`(s − q)² / 2` per token, in nats; shapes (T,) -> (T,)."""
    return k1(student_T, teacher_T) ** 2 / 2


def k3(student_T: FloatArray, teacher_T: FloatArray) -> Floats:
    """`exp(q − s) − 1 − (q − s)` per token, in nats; shapes (T,) -> (T,)."""
    log_ratio_T = -k1(student_T, teacher_T)
    return np.expm1(log_ratio_T) - log_ratio_T


def discounted_future_sum(values_T: FloatArray, discount: float) -> Floats:
    """`Σ_{u ≥ t} γ^(u−t) v_u` for each t; γ = 0 gives the values themselves."""
    out_T = np.asarray(values_T, np.float64).copy()
    if discount:
        for t in range(len(out_T) - 2, -1, -1):
            out_T[t] += discount * out_T[t + 1]
    return out_T


def unsure(student_T: FloatArray, below: float | None) -> Floats:
    """`1[exp(s_t) < below]` for the student's log-probabilities s_t of its sampled tokens; 1 everywhere if
    `below` is None.

    The sampled token's probability replaces the entropy of the position, which samplers do not report; the
    mean of −s_t is the entropy.
    """
    if below is None:
        return np.ones(len(student_T))
    return (np.asarray(student_T) < math.log(below)).astype(np.float64)


def first_wrong_line(lines: Sequence[str], passing: Sequence[Sequence[str]]) -> int:
    """Index of the first line of a failed answer that its nearest passing sibling does not have; 0 without a sibling.

    The nearest sibling has the largest ratio of equal lines, 2 M / (a + b), with M lines in common order of
    a and b; a line is right if it is one of those M. If no line is wrong (something is missing at the end),
    the result is the last line.
    """
    matchers = [SequenceMatcher(None, lines, other, autojunk=False) for other in passing]
    if not matchers:
        return 0
    nearest = max(matchers, key=lambda matcher: matcher.ratio())
    wrong = set(range(len(lines)))
    for start, _, size in nearest.get_matching_blocks():
        wrong.difference_update(range(start, start + size))
    return min(wrong, default=max(len(lines) - 1, 0))
