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
"""After so long the exception of a signal's handler is taken for lost."""


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


class LostSignal:
    """Cancels the task that made it where a signal came, and `LOST_S` later the block still goes on.

    A handler raises its exception in whatever the main thread is doing. From a callback of asyncio, or a task that nobody awaits, it goes no
    further: the run would go on without the service and the sandbox that the signal has ended.
    """

    def __init__(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        self._timer: asyncio.TimerHandle | None = None

    def expect(self) -> None:
        """A signal came; may be called from any thread."""
        self._loop.call_soon_threadsafe(self._wait)

    def _wait(self) -> None:
        if self._task is not None and self._timer is None:
            self._timer = self._loop.call_later(LOST_S, self._task.cancel)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        self._task = None
        if self._timer is not None:
            self._timer.cancel()
