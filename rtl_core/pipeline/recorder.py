"""The one writer of a run: rows queue up and go to the history in few, short transactions.

Opening and closing the database costs more than writing a group's rows, and groups finish close together. So rows wait until
a flush, `interval_s` after the first of them. A row counts as recorded only when its `write` has returned, and the next stage
begins only then; what a crash takes in between is done again, under the same keys.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from rtl_core.history.store import History

# Order within one flush: a rollout before what refers to it.
_ORDER = (
    "record_rollouts",
    "record_verdicts",
    "record_cached_verdicts",
    "record_teacher",
    "record_advantages",
    "finish_step",
    "record_evaluation",
)


class Recorder:
    """Queues rows for `History` and writes them in groups from a thread, one flush at a time."""

    def __init__(self, history: History, interval_s: float = 0.05) -> None:
        self._history = history
        self._interval_s = interval_s
        self._rows: dict[str, list[Any]] = defaultdict(list)
        self._lock = asyncio.Lock()
        self._waiting: asyncio.Task[None] | None = None
        self.busy_s = 0.0
        """Seconds spent inside the database since the start."""

    async def write(self, method: str, rows: Sequence[Any]) -> None:
        """Queue rows for one of History's methods and wait until they are committed."""
        if not rows:
            return
        self._rows[method].extend(rows)
        if self._waiting is None or self._waiting.done():
            self._waiting = asyncio.create_task(self._flush_later())
        await asyncio.shield(self._waiting)

    async def _flush_later(self) -> None:
        await asyncio.sleep(self._interval_s)
        async with self._lock:
            # Taken before the first await: rows that arrive from here on belong to the next flush.
            self._waiting = None
            batch, self._rows = self._rows, defaultdict(list)
            await asyncio.to_thread(self._commit, batch)

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run one writing method of the history at once, in turn with the flushes."""
        async with self._lock:
            start = time.perf_counter()
            try:
                return await asyncio.to_thread(function, *arguments)
            finally:
                self.busy_s += time.perf_counter() - start

    def _commit(self, batch: dict[str, list[Any]]) -> None:
        start = time.perf_counter()
        with self._history.batch():
            for method in _ORDER:
                if rows := batch.pop(method, None):
                    if method in ("finish_step", "record_evaluation"):
                        for row in rows:
                            getattr(self._history, method)(row)
                    else:
                        getattr(self._history, method)(rows)
        if batch:
            raise ValueError(f"the recorder knows no method {', '.join(batch)}")
        self.busy_s += time.perf_counter() - start
