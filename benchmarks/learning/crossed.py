"""Intervals for figures that were measured with several seeds on the same problems.

A table of S seeds by P problems has two sources of variance: the problems and the seeds. With
Y_sp = μ + a_p + b_s + e_sp (crossed random effects, one value a cell),

    Var(mean) = (MS_P + MS_S − MS_E) / (S P)

where MS_P, MS_S and MS_E are the mean squares of the two-way analysis of variance. The degrees of freedom
follow Satterthwaite, and are at least S − 1. The variance is at least MS_P / (S P), that of the interval
over problems alone. Source: Searle, Casella, McCulloch, "Variance Components", 1992, section 4.3.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from rtl_core.learning.intervals import Interval, mean_interval, t_quantile


def crossed_interval(
    values_SP: ArrayLike, *, bounds: tuple[float, float] | None = None
) -> Interval:
    """95 % interval of the mean over S seeds and P problems, for new draws of both.

    Args:
        values_SP: one value per seed and problem, for example a pass rate, or the difference of two.
        bounds: range of the mean ((0, 1) for rates), to which the interval is cut. Rates that are all equal get
            Wilson's interval over P trials; other values that are all equal get a point.

    Raises:
        ValueError: not a table of at least one seed and one problem, or values outside the bounds.
    """
    values_SP = np.atleast_2d(np.asarray(values_SP, dtype=np.float64))
    if values_SP.ndim != 2 or values_SP.size == 0:
        raise ValueError(f"seeds by problems are needed, not shape {values_SP.shape}")
    if bounds is not None and not ((values_SP >= bounds[0]) & (values_SP <= bounds[1])).all():
        raise ValueError(f"values must lie between {bounds[0]} and {bounds[1]}")
    problems = values_SP.shape[1]
    mean = float(values_SP.mean())
    if np.ptp(values_SP) < 1e-12 or problems == 1:
        if bounds == (0, 1):
            return mean_interval(values_SP.mean(axis=0))
        return Interval(mean, mean, mean, problems)
    variance, freedom = _variance(values_SP)
    half = t_quantile(0.975, freedom) * math.sqrt(variance)
    lo, hi = mean - half, mean + half
    if bounds is not None:
        lo, hi = max(bounds[0], lo), min(bounds[1], hi)
    return Interval(mean, lo, hi, problems)


def _variance(values_SP: np.ndarray) -> tuple[float, float]:
    """(variance of the mean, degrees of freedom)."""
    seeds, problems = values_SP.shape
    by_problem_P, by_seed_S = values_SP.mean(axis=0), values_SP.mean(axis=1)
    ms_problem = seeds * float(by_problem_P.var(ddof=1))
    floor = ms_problem / values_SP.size, problems - 1
    if seeds == 1:
        return floor
    ms_seed = problems * float(by_seed_S.var(ddof=1))
    rest_SP = values_SP - by_problem_P[None, :] - by_seed_S[:, None] + values_SP.mean()
    rest_freedom = (problems - 1) * (seeds - 1)
    ms_rest = float((rest_SP**2).sum()) / rest_freedom
    total = ms_problem + ms_seed - ms_rest
    if total <= ms_problem:
        return floor
    spread = (
        ms_problem**2 / (problems - 1) + ms_seed**2 / (seeds - 1) + ms_rest**2 / rest_freedom
    )
    # Because MS_E is subtracted, the formula can give less than the smallest part has, the seeds.
    return total / values_SP.size, max(seeds - 1.0, total**2 / spread)
