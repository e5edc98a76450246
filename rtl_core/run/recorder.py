"""The one writer of a run: rows queue up and go to the history in few, short transactions.

Opening and closing the database costs more than writing a group's rows. So rows are queued when their stage ends and written
together, `interval_s` later or when the writer has rested long enough from its last transaction (`share`). `settle` writes what
is left: while the optimizer runs, before its weights are saved, and at the end of an evaluation. What a crash takes before its
rows are written is done again, under the same keys.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from rtl_core.history.store import History
from rtl_core.history.transactions import Spent

# Order within one transaction: a rollout before what refers to it.
_ROWS = (
    "record_rollouts",
    "record_verdicts",
    "record_cached_verdicts",
    "record_teacher",
    "record_advantages",
    "record_trainer_tokens",
    "record_audits",
    "record_messages",
)
_SINGLE = ("finish_step", "record_evaluation")


class Recorder:
    """Queues rows for `History` and writes them in groups from a thread, one transaction at a time.

    Between transactions that nobody waits for it rests until they were at most `share` of the time.
    """

    def __init__(self, history: History, interval_s: float = 1.0, share: float = 0.02) -> None:
        self._history = history
        self._interval_s = interval_s
        self._share = share
        self._rest_until = 0.0
        self._rows: dict[str, list[Any]] = defaultdict(list)
        self._lock = asyncio.Lock()
        self._later: asyncio.Task[None] | None = None
        self._waited_s = 0.0

    def take_spent(self) -> Spent:
        """What the history has cost the run since the last call. Waited for are commits, and calls of the event loop's own thread."""
        spent = self._history.take_spent()
        spent.waited_s += self._waited_s
        self._waited_s = 0.0
        return spent

    def put(self, method: str, rows: Sequence[Any]) -> None:
        """Queue rows for one of History's methods.

        Raises whatever an earlier write in the background failed with, so that no run goes on unrecorded. The rows, those of the failed
        write too, are queued all the same, and the next write takes them: who tries again need not put them again.
        """
        if method not in (*_ROWS, *_SINGLE):
            raise ValueError(f"the recorder knows no method {method}")
        if rows:
            self._rows[method].extend(rows)
        try:
            self._raise_failure()
        finally:
            if rows and self._later is None:
                self._later = asyncio.create_task(self._write_later())

    async def settle(self) -> None:
        """Write everything that is queued; when this returns, it is committed."""
        start = time.perf_counter()
        try:
            await self._write()
        finally:
            self._waited_s += time.perf_counter() - start
        self._raise_failure()

    @asynccontextmanager
    async def settling(self) -> AsyncIterator[None]:
        """Write everything that is queued while the block runs; when it is left, it is committed."""
        writing = asyncio.create_task(self._write())
        try:
            yield
        finally:
            start = time.perf_counter()
            try:
                await writing
            finally:
                self._waited_s += time.perf_counter() - start
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self._later is not None and self._later.done():
            failed, self._later = self._later, None
            failed.result()

    async def _write_later(self) -> None:
        rest = self._interval_s
        while rest > 0:
            await asyncio.sleep(rest)
            async with self._lock:  # somebody may have settled meanwhile
                rest = self._rest_until - time.perf_counter()
        await self._write()
        self._later = None

    async def _write(self) -> None:
        async with self._lock:
            batch, self._rows = self._rows, defaultdict(list)
            if not batch:
                return
            # A cancelled run waits for its rows all the same: they are paid for, and half a truth would be recorded twice.
            commit = asyncio.ensure_future(asyncio.to_thread(self._commit, batch))
            try:
                await asyncio.shield(commit)
            except asyncio.CancelledError:
                await commit
                raise
            except BaseException:
                # Kept for the next attempt, before what has come since.
                for method, rows in self._rows.items():
                    batch[method].extend(rows)
                self._rows = batch
                raise

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run one writing method of the history at once, in turn with the flushes."""
        async with self._lock:
            return await asyncio.to_thread(function, *arguments)

    def _commit(self, batch: dict[str, list[Any]]) -> None:
        start = time.perf_counter()
        with self._history.batch():
            for method in _ROWS:
                if rows := batch.get(method):
                    getattr(self._history, method)(rows)
            for method in _SINGLE:
                for row in batch.get(method, ()):
                    getattr(self._history, method)(row)
        self._rest_until = start + (time.perf_counter() - start) / self._share
