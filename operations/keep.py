"""Keep a command running: restart it whenever it exits, until told to stop.

    python -m rtl_distill.operations.keep --pid FILE --log FILE -- COMMAND ...

Like systemd's `Restart=always` and compose's `restart: always`, for machines and containers that have neither. SIGTERM stops the
command and its children (SIGTERM first, SIGKILL after `GRACE_S`), then this process.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

GRACE_S = 20.0
"""Seconds between SIGTERM and SIGKILL."""
QUICK_S = 10.0
"""The restart delay grows while the command runs for less than this."""
LONGEST_PAUSE_S = 30.0


class Keeper:
    """A command and its current process. `stop` may be called from a signal handler."""

    def __init__(self, command: list[str], log: Path, *, spare_children: bool = False) -> None:
        self._command = command
        self._log = log
        self._spare_children = spare_children
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = False

    def stop(self, _signum: int = 0, _frame: FrameType | None = None) -> None:
        self._stopping = True
        if self._process is not None:
            _signal_group(self._process.pid, signal.SIGTERM)

    def run(self) -> int:
        """Start the command repeatedly until `stop` is called. Returns 0."""
        pause = 0.5
        while not self._stopping:
            started = time.monotonic()
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
            self._wait()
            if not self._spare_children:
                _signal_group(self._process.pid, signal.SIGKILL)  # children that the command left behind
            pause = 0.5 if time.monotonic() - started > QUICK_S else min(2 * pause, LONGEST_PAUSE_S)
            wake = time.monotonic() + pause
            while not self._stopping and time.monotonic() < wake:
                time.sleep(0.05)
        return 0

    def _wait(self) -> None:
        """Wait until the process exits; after `stop`, kill it once `GRACE_S` have passed."""
        assert self._process is not None
        while not self._stopping:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.2)
                return
        try:
            self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            _signal_group(self._process.pid, signal.SIGKILL)
            self._process.wait()


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m rtl_distill.operations.keep", description=__doc__)
    parser.add_argument("--pid", type=Path, required=True, help="file for this process's id")
    parser.add_argument("--log", type=Path, required=True, help="file to append the command's output to")
    parser.add_argument("--spare-children", action="store_true", help="let the children of a crashed command live on")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args(argv)
    arguments.log.parent.mkdir(parents=True, exist_ok=True)
    keeper = Keeper(arguments.command, arguments.log, spare_children=arguments.spare_children)
    signal.signal(signal.SIGTERM, keeper.stop)
    signal.signal(signal.SIGINT, keeper.stop)
    arguments.pid.write_text(f"{os.getpid()}\n")
    try:
        return keeper.run()
    finally:
        arguments.pid.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
