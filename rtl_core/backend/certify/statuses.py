"""Sees the answers that the SDK repeats in silence for minutes, 5xx and 409, so that a case ends with them instead of with its time.

httpx logs a line for every answer (`HTTP Request: METHOD URL "HTTP/1.1 STATUS REASON"`); this reads its arguments. Requests of the examining
thread itself are left out: cases read their own answers.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from contextlib import suppress
from types import TracebackType
from typing import Self

ENOUGH = 3
"""So many such answers of one route end a case: one may be an accident."""


class Statuses(logging.Handler):
    """Counts such answers since `reset`, as a context that listens to httpx' log."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._log = logging.getLogger("httpx")
        self._before = (self._log.level, self._log.propagate)
        self._thread = threading.get_ident()
        self._loop = asyncio.get_running_loop()
        self._seen: Counter[tuple[int, str]] = Counter()
        self._told = asyncio.Event()

    def reset(self) -> None:
        self._seen.clear()
        self._told.clear()

    async def trouble(self) -> str:
        """Wait until one route answered `ENOUGH` times so; returns that in words."""
        await self._told.wait()
        (status, path), count = self._seen.most_common(1)[0]
        return f"{path} answered {status}, {count} times; the SDK repeats such a request for five minutes, so that a run seems to hang"

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread or not isinstance(record.args, tuple) or len(record.args) != 5:
            return
        _, url, _, status, _ = record.args
        # 408 is the long poll's, and 429 a busy server's: both are waited for in earnest.
        if isinstance(status, int) and (status >= 500 or status == 409):
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                self._loop.call_soon_threadsafe(self._note, status, str(getattr(url, "path", url)))

    def _note(self, status: int, path: str) -> None:
        self._seen[status, path] += 1
        if self._seen[status, path] >= ENOUGH:
            self._told.set()

    def __enter__(self) -> Self:
        self._log.addHandler(self)
        self._log.setLevel(logging.INFO)
        self._log.propagate = False
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._log.removeHandler(self)
        level, self._log.propagate = self._before
        self._log.setLevel(level)
