"""The processes of this machine, as /proc tells of them, and the end of those that a killed command left running.

A temporary Prefect server, for one, does not notice that its run is gone. Every command that starts processes marks its own environment,
which they inherit; the mark names the command's process. The next command ends whatever carries the mark of a process that is no more.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

OWNER = "RTL_DISTILL_OWNER"
"""The mark's variable. Not the name that version 0.1.0 uses: it reads another format there, and would take these processes for orphans."""


def namespace() -> int:
    """Which set of process ids this process sees: a container has its own."""
    return os.stat("/proc/self/ns/pid").st_ino


def pids() -> Iterator[int]:
    """Ids of all processes."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            yield int(entry.name)


def variable(pid: int, name: str) -> str | None:
    """A variable in the environment of a process; None where it is not set, the process is gone, or it is another user's."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    for entry in environment.split(b"\0"):
        key, _, value = entry.partition(b"=")
        if key == name.encode():
            return value.decode(errors="replace")
    return None


def command_line(pid: int) -> str:
    """The words that a process was started with, with spaces between; empty when it is gone or another user's."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def parent(pid: int) -> int | None:
    """Id of the process that a living one belongs to; None when it is gone."""
    fields = _stat(pid)
    return int(fields[1]) if fields else None


def started(pid: int) -> str:
    """When a living process was started, in the kernel's ticks; empty when it is gone."""
    fields = _stat(pid)
    return fields[19] if fields else ""


def lives(pid: int) -> bool:
    """Whether there is such a process and it does more than wait to be collected."""
    return bool(_stat(pid))


def _stat(pid: int) -> list[str]:
    """State, parent and so on (proc(5), from the third field) of a living process; empty for any other."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    except OSError:
        return []
    return [] if fields[0] == "Z" else fields


def mark_this_process() -> None:
    """Let everything that this process starts from now on be recognised as its own."""
    os.environ[OWNER] = f"{namespace()}.{os.getpid()}.{started(os.getpid())}"


def end_orphans() -> list[int]:
    """Kill the processes that dead commands of this user left. Returns their ids.

    A command in a container counts its processes from 1 on; whether it lives cannot be told from outside, so its own are left alone.
    """
    ended = []
    here = str(namespace())
    for pid in pids():
        place, _, owner = (variable(pid, OWNER) or "").partition(".")
        number, _, start = owner.partition(".")
        if place != here or pid == os.getpid():
            continue
        # The start time tells a command from a later process that was given its number.
        if not number.isdigit() or started(int(number)) == start or int(number) == pid:
            continue
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
            ended.append(pid)
    return ended
