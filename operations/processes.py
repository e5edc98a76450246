"""Read this machine's processes from /proc, and kill those that a dead command left running.

For example, a temporary Prefect server does not notice that its run is gone. Every command that starts processes puts a mark with its own
process id into its environment, which they inherit. The next command kills all processes whose mark names a dead process.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

OWNER = "RTL_DISTILL_OWNER"
"""Variable of the mark. Not the name that version 0.1.0 reads, in another format: it would mistake these processes for orphans."""


def namespace() -> int:
    """Id of this process's PID namespace; a container has its own."""
    return os.stat("/proc/self/ns/pid").st_ino


def pids() -> list[int]:
    """Ids of all processes."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def variable(pid: int, name: str) -> str | None:
    """Environment variable of a process; None if it is not set, or the process is gone or another user's."""
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
    """Command line of a process, joined by spaces; empty if the process is gone or another user's."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def parent(pid: int) -> int | None:
    """Id of the parent process; None if the process is gone."""
    fields = _stat(pid)
    return int(fields[1]) if fields else None


def started(pid: int) -> str:
    """Start time of a process in kernel ticks; empty if it is gone."""
    fields = _stat(pid)
    return fields[19] if fields else ""


def is_alive(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    return bool(_stat(pid))


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on (proc(5)); empty if the process is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    except OSError:
        return []
    return [] if fields[0] == "Z" else fields


def mark_this_process() -> None:
    """Mark this process's environment, so that the processes it starts can be recognised."""
    os.environ[OWNER] = f"{namespace()}.{os.getpid()}.{started(os.getpid())}"


def end_orphans() -> list[int]:
    """Kill the processes that dead commands of this user left running, and return their ids.

    Processes of other PID namespaces (containers) are spared, because from here nobody can tell whether their command is alive.
    """
    ended = []
    here = str(namespace())
    for pid in pids():
        place, _, owner = (variable(pid, OWNER) or "").partition(".")
        number, _, start = owner.partition(".")
        if place != here or pid == os.getpid():
            continue
        # The start time distinguishes a command from a later process with the same id.
        if not number.isdigit() or started(int(number)) == start or int(number) == pid:
            continue
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
            ended.append(pid)
    return ended
