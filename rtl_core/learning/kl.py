"""Per-token estimators of the reverse KL divergence KL(student ‖ teacher) on the student's own samples.

For a token sampled from the student with log-probability s, and log-probability q under the teacher, let r = exp(q − s):

- k1 = s − q           unbiased, can be negative, used in the advantage
- k2 = (s − q)² / 2    biased, low variance
- k3 = (r − 1) − log r unbiased, never negative

Source: J. Schulman, "Approximating KL divergence", 2020.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.floating]


def k1(student_T: FloatArray, teacher_T: FloatArray) -> NDArray[np.float64]:
    """`s − q` per token, in nats; shapes (T,) -> (T,)."""
    return np.asarray(student_T, np.float64) - np.asarray(teacher_T, np.float64)


def k2(student_T: FloatArray, teacher_T: FloatArray) -> NDArray[np.float64]:
    """`(s − q)² / 2` per token, in nats; shapes (T,) -> (T,)."""
    return k1(student_T, teacher_T) ** 2 / 2


def k3(student_T: FloatArray, teacher_T: FloatArray) -> NDArray[np.float64]:
    """`exp(q − s) − 1 − (q − s)` per token, in nats; shapes (T,) -> (T,)."""
    log_ratio_T = -k1(student_T, teacher_T)
    return np.expm1(log_ratio_T) - log_ratio_T


def discounted_future_sum(values_T: FloatArray, discount: float) -> NDArray[np.float64]:
    """`Σ_{u ≥ t} γ^(u−t) v_u` for each t; γ = 0 gives the values themselves."""
    out_T = np.asarray(values_T, np.float64).copy()
    if discount:
        for t in range(len(out_T) - 2, -1, -1):
            out_T[t] += discount * out_T[t + 1]
    return out_T
