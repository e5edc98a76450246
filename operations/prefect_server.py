"""Run `prefect server start ...` so that clients can write to its SQLite database concurrently, without
errors and stalls: `python -m rtl_distill.operations.prefect_server start ...`.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

START_S = 15.0
"""Objects created before this time are excluded from all later collections."""
COLLECT_S = 5.0


def prepare_server() -> None:
    """Prepare this process to run a Prefect server. Call it before the server starts."""
    _lock_at_begin()
    _collect_garbage_apart()


def _lock_at_begin() -> None:
    """Let transactions on SQLite wait for the write lock when they begin.

    SQLite refuses a write at once if another transaction wrote after this one read. Prefect answers 503,
    and its client repeats after 2 seconds.
    """
    from prefect.server.database.configurations import SQLITE_BEGIN_MODE, AioSqliteConfiguration

    sqlite: Any = AioSqliteConfiguration
    begin = sqlite.begin_transaction

    @asynccontextmanager
    async def locked(
        self: Any, session: Any, with_for_update: bool = False
    ) -> AsyncIterator[Any]:
        async with begin(self, session, with_for_update=True) as transaction:
            await session.connection()  # begins, and so takes the lock
            SQLITE_BEGIN_MODE.set(
                "DEFERRED"
            )  # sessions within this one only read, and would wait for its lock
            yield transaction

    sqlite.begin_transaction = locked


def _collect_garbage_apart() -> None:
    """Collect garbage only in a dedicated thread, every few seconds.

    Freeing a cursor takes the mutex of its SQLite connection, which the connection's thread holds while it
    waits up to a minute for the database lock. If the event loop freed the cursor, it would block, and the
    transaction that holds the lock could not end.
    """

    def collect() -> None:
        time.sleep(START_S)
        gc.collect()
        gc.freeze()
        while True:
            time.sleep(COLLECT_S)
            gc.collect()

    gc.disable()
    threading.Thread(target=collect, name="garbage", daemon=True).start()


if __name__ == "__main__":
    from prefect.cli import app

    prepare_server()
    sys.argv.insert(1, "server")
    app()
