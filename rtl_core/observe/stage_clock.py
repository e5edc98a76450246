"""Wall time by stage of one step, where stages overlap."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class StageClock:
    """Seconds during which at least one piece of work of a stage was under way: the union of their intervals.

    Besides each stage there are `work`, the union over all stages, and `total`, the time since the clock was made or since the step
    before ended, whichever is later: the totals of steps that overlap add up to the time that they took. Of steps that do not, the
    difference is what the pipeline itself costs. `now` gives seconds and can be replaced to test.
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._running: dict[str, int] = {}
        self._since: dict[str, float] = {}
        self._total: dict[str, float] = {}
        self._start = now()

    @contextmanager
    def measure(self, stage: str) -> Iterator[None]:
        """Count the time of the block for `stage`; blocks may overlap on one event loop."""
        self._enter(stage)
        self._enter("work")
        try:
            yield
        finally:
            self._leave("work")
            self._leave(stage)

    def _enter(self, stage: str) -> None:
        if not self._running.get(stage):
            self._since[stage] = self._now()
        self._running[stage] = self._running.get(stage, 0) + 1

    def _leave(self, stage: str) -> None:
        self._running[stage] -= 1
        if not self._running[stage]:
            self._total[stage] = self._total.get(stage, 0.0) + self._now() - self._since[stage]

    def add(self, stage: str, seconds: float) -> None:
        """Count seconds that were measured elsewhere."""
        self._total[stage] = self._total.get(stage, 0.0) + seconds

    def seconds(self, before: float = -math.inf) -> dict[str, float]:
        """Stage -> seconds so far; the step before ended at `before`."""
        return {**self._total, "total": self._now() - max(self._start, before)}
