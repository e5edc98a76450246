"""pass@k: the probability that at least one of k samples of a problem passes, estimated without bias from n
≥ k samples."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import ArrayLike

from rtl_core.learning.intervals import Interval, mean_interval
from rtl_core.types.numbers import Floats


def pass_at_k_P(n_P: ArrayLike, c_P: ArrayLike, k: int) -> Floats:
    """Unbiased pass@k of P problems, with `n_P` samples each, of which `c_P` passed: 1 − C(n−c, k) / C(n, k).

    Computed as 1 − Π_{i=n−c+1..n} (1 − k/i), which does not overflow (Chen et al. 2021, arXiv:2107.03374, section 2.1).
    Raises ValueError for k < 1, n < k, or c outside 0..n.
    """
    n_P = np.atleast_1d(np.asarray(n_P, dtype=np.int64))
    c_P = np.atleast_1d(np.asarray(c_P, dtype=np.int64))
    if n_P.shape != c_P.shape or n_P.ndim != 1:
        raise ValueError(
            f"n_P and c_P must be of one length, not of shapes {n_P.shape} and {c_P.shape}"
        )
    if k < 1:
        raise ValueError(f"k must be at least 1, not {k}")
    if (n_P < k).any():
        raise ValueError(
            f"pass@{k} needs at least {k} samples per problem, but one has {n_P.min()}"
        )
    if (c_P < 0).any() or (c_P > n_P).any():
        raise ValueError("the passes of a problem must lie between 0 and its samples")
    # For n − c < k the product is 0, because it has the factor 1 − k/k.
    misses = []
    for n, c in zip(n_P, c_P, strict=True):
        factors = 1.0 - k / np.arange(n - c + 1, n + 1)
        misses.append(np.prod(factors))
    return 1.0 - np.array(misses)


def pass_at_k(n: int, c: int, k: int) -> float:
    """Unbiased pass@k of one problem; see `pass_at_k_P`."""
    return float(pass_at_k_P([n], [c], k)[0])


def pass_at_k_interval(counts_P: Collection[tuple[int, int]], k: int) -> Interval:
    """Mean of the unbiased pass@k of P problems, each (samples, passed), with its interval; see `pass_at_k_P`."""
    n_P, c_P = zip(*counts_P, strict=True)
    return mean_interval(pass_at_k_P(n_P, c_P, k))
