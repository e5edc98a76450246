"""Waiting for what takes as long as the machine needs."""

import contextlib
import subprocess
import time
from collections.abc import Callable
from typing import Any

import httpx
import psutil

from rtl_core.errors import HistoryError

NOT_YET = (HistoryError, httpx.TransportError, httpx.HTTPStatusError)
"""A history that is not made yet; a server that is away."""


def wait_for(
    true: Callable[[], Any], what: str, patience_s: float = 600.0, while_runs: subprocess.Popen | None = None
) -> Any:
    """What `true` says as soon as that is something: within the time, and before a process ends."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        assert while_runs is None or while_runs.poll() is None, f"it ended before {what}"
        with contextlib.suppress(*NOT_YET):
            if found := true():
                return found
        time.sleep(0.02)
    raise AssertionError(f"waited {patience_s:.0f} s for {what}")


def lives(process: int | psutil.Process) -> bool:
    """Whether there is such a process (by its id, or the very one that was found), and one that runs."""
    with contextlib.suppress(psutil.NoSuchProcess):
        found = psutil.Process(process) if isinstance(process, int) else process
        return found.is_running() and found.status() != psutil.STATUS_ZOMBIE
    return False
