"""Confidence intervals of rates over problems, and a paired test of before against after.

The unit is the problem. Samples of one problem are correlated, so they are averaged first, and only the spread between
problems counts (a cluster interval; Miller 2024, arXiv:2411.00640, section 2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from rtl_core.types.numbers import Floats

_legendre = cache(np.polynomial.legendre.leggauss)
"""Nodes and weights of an integral from −1 to 1."""
EXACT_UP_TO = 16
"""For at most this many changed problems, all 2^n sign patterns are used instead of random ones."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over `n` problems and its confidence interval."""

    mean: float
    lo: float
    hi: float
    n: int


@dataclass(frozen=True, slots=True)
class PairedResult:
    """After minus before over the same problems: mean gain with its 95 % bootstrap interval (NaN where all
    differences are equal, as with a single problem: resampling tells nothing), and a two-sided p-value."""

    gain: float
    lo: float
    hi: float
    p_value: float
    n: int
    better: int
    worse: int

    @property
    def sure(self) -> bool:
        """Whether interval and test both tell the gain from 0."""
        return self.p_value < 0.05 and not self.lo <= 0 <= self.hi


def mean_interval(rates_P: ArrayLike) -> Interval:
    """95 % interval of the mean of P per-problem rates (each in 0..1), clipped to 0..1: mean ± t_{P−1} · sd / √P.

    For a single problem or equal rates, which would give a point, it is Wilson's interval of that rate over P trials.
    Raises ValueError for no rates or rates outside 0..1.
    """
    rates_P = np.asarray(rates_P, dtype=np.float64)
    if rates_P.ndim != 1 or rates_P.size == 0:
        raise ValueError("an interval needs at least one problem")
    if not ((rates_P >= 0) & (rates_P <= 1)).all():
        raise ValueError("rates must lie between 0 and 1")
    n, mean = rates_P.size, float(rates_P.mean())
    if n == 1 or float(np.ptp(rates_P)) < 1e-12:
        return Interval(mean, *wilson(mean * n, n), n)
    sd = float(rates_P.std(ddof=1))
    half = t_quantile(0.975, n - 1) * sd / math.sqrt(n)
    return Interval(mean, max(0.0, mean - half), min(1.0, mean + half), n)


def wilson(passes: float, trials: int) -> tuple[float, float]:
    """Wilson's 95 % score interval (1927) of `passes` out of `trials` independent trials. ValueError for no trials."""
    if trials < 1 or not 0 <= passes <= trials:
        raise ValueError(f"{passes} passes of {trials} trials are no rate")
    z2 = NormalDist().inv_cdf(0.975) ** 2
    rate = passes / trials
    shrinkage = 1 + z2 / trials
    centre = (rate + z2 / (2 * trials)) / shrinkage
    variance = rate * (1 - rate) / trials + z2 / (4 * trials**2)
    half = math.sqrt(z2 * variance) / shrinkage
    return max(0.0, centre - half), min(1.0, centre + half)


def paired_test(
    before_P: ArrayLike, after_P: ArrayLike, *, seed: int = 0, draws: int = 10_000
) -> PairedResult:
    """Test whether P problems got better, by a two-sided sign-flip permutation test of the mean difference.

    Under the null hypothesis, each problem's difference has either sign with equal probability. For m ≤ 16 nonzero
    differences, all 2^m sign patterns are used. Otherwise `draws` patterns are drawn with `seed`, and the p-value is
    (1 + as extreme) / (1 + draws), so never zero. Raises ValueError if the arrays differ in length or are empty.
    """
    before_P = np.asarray(before_P, dtype=np.float64)
    after_P = np.asarray(after_P, dtype=np.float64)
    if before_P.shape != after_P.shape or before_P.ndim != 1 or before_P.size == 0:
        raise ValueError(
            "a paired test needs the same problems, at least one, before and after"
        )
    gains_P = after_P - before_P
    n, gain = gains_P.size, float(gains_P.mean())
    sizes_P = np.abs(gains_P)
    sizes_M = sizes_P[sizes_P > 1e-12]
    sums = _sign_sums(sizes_M, seed, draws)
    threshold = abs(float(gains_P.sum())) - 1e-9
    extreme = int((np.abs(sums) >= threshold).sum())
    sampled = int(sizes_M.size > EXACT_UP_TO)  # the observed pattern counts as one more
    p_value = (sampled + extreme) / (sampled + sums.size)
    lo, hi = _bootstrap(gains_P, seed, draws)
    better, worse = int((gains_P > 1e-12).sum()), int((gains_P < -1e-12).sum())
    return PairedResult(gain, lo, hi, p_value, n, better, worse)


def unpaired_difference(first: Interval, second: Interval) -> Interval:
    """Second minus first of two independent means, with the interval that follows from theirs (Zou and
    Donner 2008, Statistics in Medicine 27, 1693). `n` is the smaller number of problems."""
    down = math.hypot(second.mean - second.lo, first.hi - first.mean)
    up = math.hypot(second.hi - second.mean, first.mean - first.lo)
    gap = second.mean - first.mean
    return Interval(gap, gap - down, gap + up, min(first.n, second.n))


def _sign_sums(sizes_M: Floats, seed: int, draws: int) -> Floats:
    """Sums of the sizes under all sign patterns, or under `draws` random ones."""
    m = sizes_M.size
    if m <= EXACT_UP_TO:
        patterns = (np.arange(2**m)[:, None] >> np.arange(m)) & 1
    else:
        patterns = np.random.default_rng(seed).integers(0, 2, size=(draws, m))
    return (2.0 * patterns - 1.0) @ sizes_M


def _bootstrap(values_P: Floats, seed: int, draws: int) -> tuple[float, float]:
    """95 % percentile interval of the mean over resampled problems; NaN for equal values."""
    if float(np.ptp(values_P)) < 1e-12:
        return math.nan, math.nan
    rng = np.random.default_rng(seed)
    rows = max(1, 2_000_000 // values_P.size)  # blocks of at most 16 MB
    means = []
    for start in range(0, draws, rows):
        shape = (min(rows, draws - start), values_P.size)
        problems = rng.integers(0, values_P.size, size=shape)
        means.append(values_P[problems].mean(axis=1))
    lo, hi = np.quantile(np.concatenate(means), [0.025, 0.975])
    return float(lo), float(hi)


def t_quantile(p: float, df: float) -> float:
    """Quantile of Student's t with `df` degrees of freedom for 0.5 ≤ p < 1, to about 1e-9 (in the far tail
    of less than two, less).

    P(|T| ≤ √df · tan φ) is the integral of cos(u)^(df−1) from 0 to φ, divided by that to π/2; by Gauss and
    Legendre's nodes, inverted by bisection. Raises ValueError outside that range.
    """
    if not 0.5 <= p < 1 or df < 1:
        raise ValueError(f"no t quantile for p = {p}, df = {df}")
    nodes, weights = _legendre(100)
    log_ratio = math.lgamma(df / 2) - math.lgamma((df + 1) / 2)
    whole = math.sqrt(math.pi) / 2 * math.exp(log_ratio)
    lo, hi = 0.0, math.pi / 2
    for _ in range(80):
        middle = (lo + hi) / 2
        heights = np.cos(middle / 2 * (nodes + 1)) ** (df - 1)
        within = middle / 2 * float(weights @ heights) / whole
        lo, hi = (middle, hi) if within < 2 * p - 1 else (lo, middle)
    return math.sqrt(df) * math.tan((lo + hi) / 2)
