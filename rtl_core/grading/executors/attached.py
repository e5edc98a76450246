"""A program on this process' own terminal, or on its plain streams where that is none."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Sequence


def attached(command: Sequence[str], keep: Sequence[int] = ()) -> int:
    """Runs a command until it ends; its exit code. `keep` are descriptors that it inherits.

    On a terminal it gets one of its own, so that it can neither write into ours (TIOCSTI) nor lose Ctrl-C and job control.
    """
    sys.stdout.flush()
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return subprocess.call(command, pass_fds=keep)
    for descriptor in keep:
        os.set_inheritable(descriptor, True)
    theirs: list[int] = []

    def read(terminal: int) -> bytes:
        if not theirs:
            theirs.append(terminal)
            copy_size()
        return os.read(terminal, 1 << 14)

    def copy_size(*_: object) -> None:
        for terminal in theirs:
            fcntl.ioctl(terminal, termios.TIOCSWINSZ, fcntl.ioctl(0, termios.TIOCGWINSZ, b"\0" * 8))

    resized = signal.signal(signal.SIGWINCH, copy_size)
    try:
        return os.waitstatus_to_exitcode(pty.spawn(command, read))
    finally:
        signal.signal(signal.SIGWINCH, resized)
