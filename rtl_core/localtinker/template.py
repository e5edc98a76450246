"""A process that only forks: every sampling process starts as a copy of it, with the base models loaded.

It is forked from the service when the models are loaded and nothing runs yet (no thread, no event loop, no open database), so
that its copies start in milliseconds, share the frozen weights with it page by page, and never inherit a lock that somebody holds.

Nothing outlives the service: the template sees its end of the control socket close when the service ends, however that
happened, kills its copies and goes. A copy sees the same on its own socket.
"""

from __future__ import annotations

import gc
import logging
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from typing import NoReturn

logger = logging.getLogger(__name__)

Run = Callable[[socket.socket], None]


class Template:
    """The service's handle of its template process. `run` is what a copy does with its end of a socket, until that closes."""

    def __init__(self, run: Run) -> None:
        self._control, control_end = socket.socketpair()
        gc.freeze()  # a collection in a copy would otherwise write to, and so copy, the pages of every object
        self.pid = os.fork()
        if self.pid == 0:
            _be_template(control_end, run)
        control_end.close()

    def fork(self) -> socket.socket:
        """A new copy; returns our end of its socket. Raises OSError when the template has ended."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._control, [b"."], [theirs.fileno()])
            except OSError:
                ours.close()
                raise
        return ours

    def close(self, patience_s: float = 2.0) -> None:
        """End the template and its copies, and wait until they are gone. Safe to call twice."""
        self._control.close()
        deadline = time.monotonic() + patience_s
        while self.pid:
            ended, _ = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self.pid = 0
            elif time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
            else:
                time.sleep(0.005)


def _be_template(control: socket.socket, run: Run) -> NoReturn:
    """Fork a copy for every socket that comes; never returns."""
    copies: dict[int, int] = {}  # descriptor that tells of its end -> process id
    poller = select.poll()
    try:
        _leave_the_service(keep=control.fileno())
        poller.register(control, select.POLLIN)
        while True:
            for descriptor, _ in poller.poll():
                if descriptor in copies:
                    poller.unregister(descriptor)
                    os.close(descriptor)
                    ended, status = os.waitpid(copies.pop(descriptor), 0)
                    logger.warning("sampling process %d ended: %s", ended, os.waitstatus_to_exitcode(status))
                elif (copy := _fork_copy(control, run)) is not None:
                    copies[descriptor := os.pidfd_open(copy)] = copy
                    poller.register(descriptor, select.POLLIN)
                else:
                    for copy in copies.values():
                        os.kill(copy, signal.SIGKILL)
                    for copy in copies.values():
                        os.waitpid(copy, 0)
                    os._exit(0)
    except BaseException:
        logger.exception("process %d of the service failed", os.getpid())
        os._exit(1)


def _fork_copy(control: socket.socket, run: Run) -> int | None:
    """Take a socket from the service and start a copy on it; None when the service has gone."""
    message, descriptors, _, _ = socket.recv_fds(control, 1, 1)
    if not message:
        return None
    pid = os.fork()
    if pid == 0:
        control.close()
        with socket.socket(fileno=descriptors[0]) as sock:
            run(sock)
        os._exit(0)
    os.close(descriptors[0])
    return pid


def _leave_the_service(keep: int) -> None:
    """Let go of what belongs to the service alone: its listening socket, its pipes, Ctrl-C, which it passes on by ending."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.closerange(3, keep)
    os.closerange(keep + 1, os.sysconf("SC_OPEN_MAX"))
