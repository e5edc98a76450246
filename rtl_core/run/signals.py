"""Ending what costs money or holds a core the moment a signal arrives, whatever the rest of the process is doing.

Python handles a signal between two steps of the main thread, and the libraries above us put their own handlers there; a clean
end then goes through their states and requests, which can take long on a busy machine. So besides the handlers, which stay as
they are, the C level writes each signal into a pipe, and a thread of ours reads it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator

_STOPPING = (signal.SIGTERM, signal.SIGINT)
LOST_S = 10.0
"""Seconds after which the exception of a signal's handler counts as lost."""


@contextlib.contextmanager
def at_once_on_signal(end: Callable[[], object]) -> Iterator[None]:
    """Call `end`, from a thread, as soon as SIGTERM or SIGINT arrives inside the block.

    Works in the main thread of a process whose signals nobody else reads from a pipe; elsewhere the block runs without it, and
    the ordinary way of a cancellation is the only one.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    previous = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    if previous != -1:
        signal.set_wakeup_fd(previous)
        os.close(reader)
        os.close(writer)
        yield
        return

    def read() -> None:
        while data := os.read(reader, 64):
            if any(number in _STOPPING for number in data):
                end()

    thread = threading.Thread(target=read, name="signals", daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(-1)
        os.close(writer)
        thread.join()
        os.close(reader)


def cancel_later() -> Callable[[], None]:
    """A function for any thread: it cancels the present task, if that still runs `LOST_S` after the call.

    Python raises the exception of a signal's handler in whatever the main thread is doing. Where that is a callback of asyncio, or a task that
    nobody awaits, nobody else sees the exception, and the work goes on.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None, "called from a coroutine"

    def begin() -> None:
        loop.call_soon_threadsafe(lambda: loop.call_later(LOST_S, task.cancel))

    return begin
