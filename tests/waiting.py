"""Helpers that wait for a condition."""

import contextlib
import subprocess
import time
from collections.abc import Callable
from typing import Any

import httpx
import psutil

from rtl_core.errors import HistoryError

NOT_YET = (HistoryError, httpx.TransportError, httpx.HTTPStatusError)
"""Errors of a history that does not exist yet, or of a server that is not running."""


def wait_for(
    true: Callable[[], Any],
    what: str,
    patience_s: float = 600.0,
    while_runs: subprocess.Popen | None = None,
) -> Any:
    """Wait until `true` returns a true value, and return it. Fails on a timeout, or if the process `while_runs` ends first."""
    began = time.monotonic()
    while (waited := time.monotonic() - began) < patience_s:
        assert while_runs is None or while_runs.poll() is None, f"it ended before {what}"
        with contextlib.suppress(*NOT_YET):
            if found := true():
                return found
        time.sleep(
            min(0.02 + waited / 20, 0.25)
        )  # less and less often: each query takes CPU time from what it awaits
    raise AssertionError(f"waited {patience_s:.0f} s for {what}")


def lives(process: int | psutil.Process) -> bool:
    """Whether a process (or a process id) is running and not a zombie."""
    with contextlib.suppress(psutil.NoSuchProcess):
        found = psutil.Process(process) if isinstance(process, int) else process
        return found.is_running() and found.status() != psutil.STATUS_ZOMBIE
    return False
