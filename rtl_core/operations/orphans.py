"""What a killed command left running. A temporary Prefect server, for one, does not notice that its run is gone.

Every command that starts processes marks its own environment, which they inherit; the mark names the command's process. The
next command ends whatever carries the mark of a process that is no more.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

MARK = "RTL_DISTILL_COMMAND"


def mark_this_process() -> None:
    """Let everything that this process starts from now on be recognised as its own."""
    os.environ[MARK] = f"{os.getpid()}.{_started(os.getpid())}"


def end_orphans() -> list[int]:
    """Kill the processes that dead commands of this user left. Returns their ids."""
    ended = []
    for pid in _processes():
        owner = _owner(pid)
        if owner is None or pid == os.getpid():
            continue
        number, _, started = owner.partition(".")
        # The start time tells a command from a later process that was given its number.
        if not number.isdigit() or _started(int(number)) == started or int(number) == pid:
            continue
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
            ended.append(pid)
    return ended


def _processes() -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            yield int(entry.name)


def _owner(pid: int) -> str | None:
    """The mark in a process's environment."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # gone, or another user's
        return None
    for entry in environment.split(b"\0"):
        if entry.startswith(f"{MARK}=".encode()):
            return entry.partition(b"=")[2].decode(errors="replace")
    return None


def _started(pid: int) -> str:
    """When a process was started, in the kernel's ticks; empty when there is none or it is only waiting to be collected."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]
