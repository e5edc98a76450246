"""Keep a command running: restart it whenever it exits, until told to stop.

    python -m rtl_distill.operations.keep PID_FILE LOG COMMAND ...

Like systemd's `Restart=always` and compose's `restart: always`, for machines and containers that have
neither. SIGTERM and SIGINT stop the command and its children, then this process; its end by SIGKILL ends
the command too. The children of a command that crashed live on, like the runs of a worker.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

PAUSE_S = 2.0
"""Seconds before a restart."""


def _die_with_parent() -> None:
    """Without its keeper a command would go on unseen, and `deploy up` would start a second one."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def keep(pid_file: Path, log: Path, command: list[str]) -> None:
    """Start the command repeatedly until a signal arrives. `pid_file` holds this process's id meanwhile;
    `log` gets the command's output."""
    process: subprocess.Popen[bytes] | None = None
    stopping = False

    def stop(_number: int = 0, _frame: FrameType | None = None) -> None:
        nonlocal stopping
        stopping = True
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    pid_file.write_text(f"{os.getpid()}\n")
    try:
        while not stopping:
            with log.open("ab") as output:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    preexec_fn=_die_with_parent,
                )
            if stopping:  # the signal came before the process was known
                stop()
            process.wait()
            if not stopping:
                time.sleep(PAUSE_S)
    finally:
        pid_file.unlink(missing_ok=True)


if __name__ == "__main__":
    keep(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
