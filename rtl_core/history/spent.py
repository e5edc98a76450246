"""What the history costs the process that writes it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, fields


@dataclass(frozen=True)
class Spent:
    """Seconds inside the database by the clock, waiting for other processes included, and of the calling threads' CPU (the
    writer's DuckDB has no threads of its own)."""

    writing_s: float = 0.0
    reading_s: float = 0.0
    blocking_s: float = 0.0
    """Of `reading_s`, what an event loop was held up by: questions that its own thread asked."""
    cpu_s: float = 0.0

    def __sub__(self, earlier: Spent) -> Spent:
        return Spent(*(getattr(self, f.name) - getattr(earlier, f.name) for f in fields(self)))


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
                t, read = self.total, wall * (not writing)
                blocking = read if asyncio._get_running_loop() is not None else 0.0
                self.total = Spent(
                    t.writing_s + wall - read, t.reading_s + read, t.blocking_s + blocking, t.cpu_s + cpu
                )
