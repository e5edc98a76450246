"""Whether work on a text takes time linear in its length, told by a small and a large text and not by the speed of a machine."""

import time
from collections.abc import Callable

SMALL, LARGE = 5_000, 80_000
MOST_GROWTH = 64
"""Sixteen times the text may take so many times as long: 16 times where reading is linear, 256 where it is quadratic."""
LEAST_S = 0.0005
"""CPU time below which the small text's time says nothing."""


def assert_linear(work: Callable[[str], object], make: Callable[[int], str]) -> None:
    """`make` gives a text of so many characters."""
    small, large = make(SMALL), make(LARGE)
    assert (len(small), len(large)) == (SMALL, LARGE)
    most_s = MOST_GROWTH * max(LEAST_S, min(_cpu_s(work, small) for _ in range(2)))
    # The garbage collector may come in between, but not three times.
    taken_s = []
    while not taken_s or (taken_s[-1] > most_s and len(taken_s) < 3):
        taken_s.append(_cpu_s(work, large))
    assert min(taken_s) <= most_s


def _cpu_s(work: Callable[[str], object], text: str) -> float:
    start = time.thread_time()
    work(text)
    return time.thread_time() - start
