"""pass@k: the probability that at least one of k samples of a problem passes, estimated without bias from n
≥ k samples."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from rtl_core.learning.intervals import Interval, mean_interval
from rtl_core.types.numbers import Floats


def pass_at_k_P(n_P: Sequence[int], c_P: Sequence[int], k: int) -> Floats:
    """Unbiased pass@k of P problems, with `n_P` samples each, of which `c_P` passed: 1 − C(n−c, k) / C(n, k).

    Computed as 1 − Π_{i=n−c+1..n} (1 − k/i), which does not overflow (Chen et al. 2021, arXiv:2107.03374, section 2.1).
    k is at most the number of samples of each problem. For n − c < k the product is 0: it has the factor 1 − k/k.
    """
    misses = [
        np.prod(1.0 - k / np.arange(n - c + 1, n + 1)) for n, c in zip(n_P, c_P, strict=True)
    ]
    return 1.0 - np.array(misses)


def pass_at_k_interval(counts_P: Collection[tuple[int, int]], k: int) -> Interval:
    """Mean of the unbiased pass@k of P problems, each (samples, passed), with its interval; see `pass_at_k_P`."""
    n_P, c_P = zip(*counts_P, strict=True)
    return mean_interval(pass_at_k_P(n_P, c_P, k))
