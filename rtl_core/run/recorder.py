"""The single writer of a run: rows are queued and written to the history in few, short transactions.

Opening and closing the database costs more than writing a group's rows. So rows are queued when their stage
ends and written together, `interval_s` later or when the writer has rested long enough since its last
transaction (`share`). `settle` writes the rest: while the optimizer runs, before its weights are saved, and
at the end of an evaluation. Work whose rows are lost in a crash is repeated under the same keys.
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

# Order within one transaction: a rollout before rows that refer to it.
_ROWS = (
    "record_rollouts",
    "record_verdicts",
    "record_cached_verdicts",
    "record_teacher",
    "record_advantages",
    "record_trainer_tokens",
    "record_audits",
    "record_messages",
    "record_validations",
)
_SINGLE = ("finish_step", "record_evaluation")


class Recorder:
    """Queues rows for `History` and writes them in groups from a thread, one transaction at a time.

    Between background transactions it rests, so that they take at most `share` of the time.
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
        """Return the time spent in the history since the last call. The run waits for commits and for calls
        in the event loop's thread."""
        spent = self._history.take_spent()
        spent.waited_s += self._waited_s
        self._waited_s = 0.0
        return spent

    def put(self, method: str, rows: Sequence[Any]) -> None:
        """Queue rows for one of History's methods.

        Raises the error of a failed background write, so that no run goes on unrecorded. The new rows and
        those of the failed write stay queued for the next write, so a retry need not put them again.
        """
        if method not in (*_ROWS, *_SINGLE):
            raise ValueError(f"the recorder has no method {method}")
        if rows:
            self._rows[method].extend(rows)
        try:
            self._raise_failure()
        finally:
            if rows and self._later is None:
                self._later = asyncio.create_task(self._write_later())

    async def settle(self) -> None:
        """Write everything that is queued and wait for the commit."""
        async with self.settling():
            pass

    @asynccontextmanager
    async def settling(self) -> AsyncIterator[None]:
        """Write everything that is queued while the block runs, and wait for the commit at its end."""
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
            async with self._lock:  # `settle` may have run meanwhile
                rest = self._rest_until - time.perf_counter()
        await self._write()
        self._later = None

    async def _write(self) -> None:
        async with self._lock:
            batch, self._rows = self._rows, defaultdict(list)
            if not batch:
                return
            # A cancelled run still waits for its rows: they are paid for, and a partial record would be written twice.
            commit = asyncio.ensure_future(asyncio.to_thread(self._commit, batch))
            try:
                await asyncio.shield(commit)
            except BaseException:
                (failure,) = await asyncio.gather(commit, return_exceptions=True)
                if failure is not None:
                    # Queued again for the next attempt, before rows that were put since.
                    for method, rows in self._rows.items():
                        batch[method].extend(rows)
                    self._rows = batch
                raise

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run one writing method of the history immediately, never concurrently with a write of queued rows."""
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
