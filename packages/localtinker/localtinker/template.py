"""The template process, from which all sampling processes are forked with the base models loaded.

It is forked from the service after the models are loaded and before anything runs (no thread, no event
loop, no open database). So sampling processes start in milliseconds, share the memory of the frozen
weights, and never inherit a held lock. The standard library's fork server would import torch and load the
models a second time.

No process outlives the service: the kernel kills each of them when its parent ends for any reason.
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
    """Handle of the template process. A forked copy calls `run` with its end of a connection, and serves it
    until it closes."""

    def __init__(self, run: Run) -> None:
        self._control, control_end = socket.socketpair()
        gc.freeze()  # otherwise a garbage collection in a copy would write to, and so copy, the pages of every object
        service = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            self._control.close()
            _run_and_exit(partial(_fork_copies, control_end, run, service))
        control_end.close()

    def fork(self) -> Connection:
        """Fork a copy and return our end of its connection. Raises OSError when the template process has ended."""
        ours, theirs = Pipe()
        with theirs:
            socket.send_fds(self._control, [b"."], [theirs.fileno()])
        return ours

    def close(self) -> None:
        """End the template and its copies."""
        self._control.close()
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def _run_and_exit(work: Callable[[], None]) -> NoReturn:
    """Run `work` and exit, without the parent's exit handlers."""
    try:
        work()
    except BaseException:
        logger.exception("process %d of the service failed", os.getpid())
        os._exit(1)
    os._exit(0)


def _fork_copies(control: socket.socket, run: Run, service: int) -> None:
    """Fork a copy for every connection received, until the service closes its end."""
    _die_with(service)
    # Ctrl-C ends the service, and its end ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # copies that end leave no zombies
    # Close all inherited descriptors, so that the service's port is free as soon as the service ends.
    os.closerange(3, control.fileno())
    os.closerange(control.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
    template = os.getpid()
    while descriptors := socket.recv_fds(control, 1, 1)[1]:
        (descriptor,) = descriptors
        if os.fork() == 0:
            _die_with(template)
            control.close()
            _run_and_exit(partial(run, Connection(descriptor)))
        os.close(descriptor)


def _die_with(parent: int) -> None:
    """Let the kernel kill this process when its parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the call
        os._exit(0)
