"""Run `prefect server start ...` without its one-minute stalls on SQLite: `python -m rtl_distill.operations.prefect_server start ...`."""

from __future__ import annotations

import gc
import sys
import threading
import time

START_S = 15.0
"""Objects created before this time are excluded from all later collections."""
COLLECT_S = 5.0


def collect_garbage_apart() -> None:
    """Collect garbage only in a dedicated thread, every few seconds.

    Freeing a cursor takes the mutex of its SQLite connection, which the connection's thread holds while it waits up to a minute for the
    database lock. If the event loop freed the cursor, it would block, and the transaction that holds the lock could not end.
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

    collect_garbage_apart()
    sys.argv.insert(1, "server")
    app()
