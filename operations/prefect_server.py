"""Prefect's server without its pauses of a minute on SQLite: `python -m rtl_distill.operations.prefect_server start ...`, as `prefect server start ...`."""

from __future__ import annotations

import gc
import sys
import threading
import time

START_S = 15.0
"""What a server has made by then is left out of all later collections."""
COLLECT_S = 5.0


def collect_garbage_apart() -> None:
    """Collect garbage in a thread of its own, every few seconds, and nowhere else.

    Freeing a cursor takes the mutex of its SQLite connection. The connection's thread holds that mutex while it waits for the lock of the
    database, up to a minute. If the event loop frees the cursor meanwhile, it blocks, and the transaction that has the lock cannot end.
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
