"""A process that only forks: every sampling process starts as a copy of it, with the base models loaded.

It is forked from the service when the models are loaded and nothing runs yet (no thread, no event loop, no open database), so
that its copies start in milliseconds, share the frozen weights with it page by page, and never inherit a lock that somebody holds.
The standard library's fork server would import torch and load the models a second time.

Nothing outlives the service: the kernel kills a process of this file when its parent ends, however that happened.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import signal
import socket
from collections.abc import Callable
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import NoReturn

logger = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1  # prctl(2)
Run = Callable[[Connection], None]


class Template:
    """The service's handle of its template process. `run` is what a copy does with its end of a connection, until that closes."""

    def __init__(self, run: Run) -> None:
        self._control, control_end = socket.socketpair()
        gc.freeze()  # a collection in a copy would otherwise write to, and so copy, the pages of every object
        service = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            self._control.close()
            _only(partial(_be_template, control_end, run, service))
        control_end.close()

    def fork(self) -> Connection:
        """A new copy; returns our end of its connection. Raises OSError when the template has ended."""
        ours, theirs = Pipe()
        with theirs:
            try:
                socket.send_fds(self._control, [b"."], [theirs.fileno()])
            except OSError:
                ours.close()
                raise
        return ours

    def close(self) -> None:
        """End the template and its copies. Safe to call twice."""
        self._control.close()
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0


def _only(work: Callable[[], None]) -> NoReturn:
    """Do `work`, and nothing else that the process was forked from does."""
    try:
        work()
    except BaseException:
        logger.exception("process %d of the service failed", os.getpid())
        os._exit(1)
    os._exit(0)


def _be_template(control: socket.socket, run: Run, service: int) -> None:
    """Fork a copy for every connection that comes, until the service closes its end."""
    _die_with(service)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the service, which passes it on by ending
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # copies that have ended leave nothing behind
    # The service's listening socket is not for us: its port is free as soon as the service ends.
    os.closerange(3, control.fileno())
    os.closerange(control.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
    template = os.getpid()
    while (received := socket.recv_fds(control, 1, 1))[0]:
        (descriptor,) = received[1]
        if os.fork() == 0:
            _die_with(template)
            control.close()
            _only(partial(run, Connection(descriptor)))
        os.close(descriptor)


def _die_with(parent: int) -> None:
    """Let the kernel kill this process when its parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended already
        os._exit(0)
