"""The processes of this machine, as /proc tells of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


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
