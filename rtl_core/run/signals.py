"""Immediate reaction to a signal, so that costs and computation end whatever the rest of the process is doing.

Python runs signal handlers in the main thread, and libraries such as Prefect install their own; their clean
shutdown can take long on a busy machine. So in addition to the handlers, which stay unchanged, Python's
wakeup file descriptor is a pipe that a thread of our own reads.
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
"""Seconds after which the exception of a signal handler counts as lost."""


@contextlib.contextmanager
def call_on_signal(end: Callable[[], object]) -> Iterator[None]:
    """Call `end` from a thread as soon as SIGTERM or SIGINT arrives inside the block.

    Works only in the main thread, and only if the process has no other wakeup file descriptor. Otherwise
    the block runs without it, and signals take effect through their handlers alone.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    if (previous := signal.set_wakeup_fd(-1)) != -1:
        signal.set_wakeup_fd(previous)
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

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
    """Return a thread-safe function that cancels the current task if it still runs `LOST_S` after the call.

    The exception of a signal handler is raised in whatever the main thread executes. In an asyncio
    callback, or in a task that is never awaited, it is lost, and the work would go on.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None, "called from a coroutine"

    def start() -> None:
        loop.call_soon_threadsafe(lambda: loop.call_later(LOST_S, task.cancel))

    return start
