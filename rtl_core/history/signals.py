"""The exceptions of signal handlers wait for the end of a block.

They are raised between any two instructions of the main thread, also between opening a file and the `try`
that closes it.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

import duckdb


@contextlib.contextmanager
def signals_later(con: duckdb.DuckDBPyConnection) -> Iterator[list[BaseException]]:
    """Raise the exceptions of SIGINT's and SIGTERM's handlers after the block. They end the running statement of `con`.

    Yields the exceptions so far; none in other threads than the main one.
    """
    raised: list[BaseException] = []

    def handle(number: int, frame: FrameType | None) -> None:
        try:
            handlers[signal.Signals(number)](number, frame)
        except BaseException as error:
            raised.append(error)
            con.interrupt()

    numbers = (
        (signal.SIGINT, signal.SIGTERM)
        if threading.current_thread() is threading.main_thread()
        else ()
    )
    handlers = {
        number: handler for number in numbers if callable(handler := signal.getsignal(number))
    }
    try:
        for number in handlers:
            signal.signal(number, handle)
        yield raised
    finally:
        for number, handler in handlers.items():
            if signal.getsignal(number) is handle:  # a handler may have replaced it
                signal.signal(number, handler)
        if raised:
            raise raised[0]
