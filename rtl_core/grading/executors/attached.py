"""A program on this process' own terminal, or on its plain streams where that is none."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import tty
from collections.abc import Sequence


def attached(command: Sequence[str], keep: Sequence[int] = ()) -> int:
    """Runs a command until it ends; its exit code. `keep` are descriptors that it inherits.

    On a terminal it gets one of its own, so that it can neither write into ours (TIOCSTI) nor lose Ctrl-C and job control.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        sys.stdout.flush()
        return subprocess.call(command, pass_fds=keep)
    ours, theirs = pty.openpty()
    _copy_size(ours)
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, pass_fds=keep)
    os.close(theirs)
    before = termios.tcgetattr(0)
    resized = signal.signal(signal.SIGWINCH, lambda *_: _copy_size(ours))
    try:
        tty.setraw(0)
        _relay(ours)
    finally:
        signal.signal(signal.SIGWINCH, resized)
        termios.tcsetattr(0, termios.TCSADRAIN, before)
        os.close(ours)
    return process.wait()


def _copy_size(terminal: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, fcntl.ioctl(0, termios.TIOCGWINSZ, b"\0" * 8))


def _relay(terminal: int) -> None:
    """Copies both ways until the other side is gone."""
    sources = [0, terminal]
    while True:
        for source in select.select(sources, [], [])[0]:
            try:
                data = os.read(source, 1 << 14)
            except OSError:  # a terminal whose last program has ended
                data = b""
            if source == terminal and not data:
                return
            if not data:
                sources.remove(source)
                data = b"\x04"
            os.write(1 if source == terminal else terminal, data)
