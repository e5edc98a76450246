"""Wall time of a step by stage; stages may overlap."""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class StageClock:
    """Seconds during which at least one task of a stage was running: the union of their intervals.

    `work` is the union of all stages. `total` is the time since the clock was created or since the previous
    step ended, whichever is later, so the totals of overlapping steps add up to the elapsed time. `total`
    minus `work` is the overhead of the pipeline. `now` returns seconds; tests replace it.
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._running: Counter[str] = Counter()
        self._since: dict[str, float] = {}
        self._total: defaultdict[str, float] = defaultdict(float)
        self._start = now()

    @contextmanager
    def measure(self, stage: str) -> Iterator[None]:
        """Count the time of the block for `stage`; blocks may overlap on one event loop."""
        for name in ("work", stage):
            if not self._running[name]:
                self._since[name] = self._now()
            self._running[name] += 1
        try:
            yield
        finally:
            for name in ("work", stage):
                self._running[name] -= 1
                if not self._running[name]:
                    self.add(name, self._now() - self._since[name])

    def add(self, stage: str, seconds: float) -> None:
        """Add seconds that were measured elsewhere."""
        self._total[stage] += seconds

    def seconds(self, before: float = -math.inf) -> dict[str, float]:
        """Mapping of stage to seconds so far; the previous step ended at `before`."""
        return {**self._total, "total": self._now() - max(self._start, before)}
