"""Wall time by stage of one step, where stages overlap."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class StageClock:
    """Seconds during which at least one piece of work of a stage was under way (the union of their intervals)."""

    def __init__(self) -> None:
        self._running: dict[str, int] = {}
        self._since: dict[str, float] = {}
        self._total: dict[str, float] = {}
        self._start = time.perf_counter()

    @contextmanager
    def measure(self, stage: str) -> Iterator[None]:
        """Count the time of the block for `stage`; blocks of one stage may run at the same time on one event loop."""
        now = time.perf_counter()
        if not self._running.get(stage):
            self._since[stage] = now
        self._running[stage] = self._running.get(stage, 0) + 1
        try:
            yield
        finally:
            self._running[stage] -= 1
            if not self._running[stage]:
                self._total[stage] = self._total.get(stage, 0.0) + time.perf_counter() - self._since[stage]

    def seconds(self) -> dict[str, float]:
        """Stage -> seconds, and `total` since the clock was made."""
        return {**self._total, "total": time.perf_counter() - self._start}
