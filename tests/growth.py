"""Check that processing a text takes linear time, by comparing a small and a large text on the same machine."""

import time
from collections.abc import Callable

SMALL, LARGE = 5_000, 80_000
MOST_GROWTH = 64
"""Maximum ratio of the times for sixteen times the text: linear work takes 16 times as long, quadratic work 256 times."""
LEAST_S = 0.0005
"""Minimum CPU time of the small text; shorter times are too inaccurate."""


def assert_linear(work: Callable[[str], object], make: Callable[[int], str]) -> None:
    """Assert that `work` takes linear time on texts from `make`, which gets the number of characters."""
    small, large = make(SMALL), make(LARGE)
    assert (len(small), len(large)) == (SMALL, LARGE)
    most_s = MOST_GROWTH * max(LEAST_S, min(_cpu_s(work, small) for _ in range(2)))
    # The garbage collector may slow down one attempt, but not three.
    assert any(_cpu_s(work, large) <= most_s for _ in range(3))


def _cpu_s(work: Callable[[str], object], text: str) -> float:
    start = time.thread_time()
    work(text)
    return time.thread_time() - start
