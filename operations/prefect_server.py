"""Prefect's server without its pauses of a minute on SQLite: `python -m rtl_distill.operations.prefect_server start ...`, as `prefect server start ...`."""

from __future__ import annotations

import gc
import sys
import threading
import time

START_S, COLLECT_S = 15.0, 5.0


def collect_garbage_apart() -> None:
    """Collect garbage in a thread of its own, every few seconds, and nowhere else.

    A cursor that is garbage waits for the lock of its SQLite connection, and that connection may wait for the database, for up to a minute.
    Where the garbage is found in the event loop, the loop waits with it, and so does the transaction that the connection waits for.
    """

    def collect() -> None:
        time.sleep(START_S)
        gc.collect()
        gc.freeze()  # what a server is made of, which is not to be looked through every time
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
