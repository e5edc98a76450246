"""What the history costs the process that writes it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Spent:
    """Seconds inside the database: `writing_s` and `reading_s` by the clock, waiting for other processes included, and
    `cpu_s` of the calling threads (the writer's DuckDB has no threads of its own)."""

    writing_s: float = 0.0
    reading_s: float = 0.0
    cpu_s: float = 0.0

    def __sub__(self, earlier: Spent) -> Spent:
        return Spent(self.writing_s - earlier.writing_s, self.reading_s - earlier.reading_s, self.cpu_s - earlier.cpu_s)


@dataclass
class Meter:
    """Adds up what every use of one `History` takes, from whatever thread."""

    total: Spent = field(default_factory=Spent)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextlib.contextmanager
    def measure(self, *, writing: bool) -> Iterator[None]:
        """Count the block."""
        wall, cpu = time.perf_counter(), time.thread_time()
        try:
            yield
        finally:
            wall, cpu = time.perf_counter() - wall, time.thread_time() - cpu
            with self._lock:
                t = self.total
                self.total = Spent(t.writing_s + wall * writing, t.reading_s + wall * (not writing), t.cpu_s + cpu)
