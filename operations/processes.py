"""Read this machine's processes from /proc."""

from __future__ import annotations

from pathlib import Path


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
        return (
            Path(f"/proc/{pid}/cmdline")
            .read_bytes()
            .replace(b"\0", b" ")
            .decode(errors="replace")
        )
    except OSError:
        return ""


def parent(pid: int) -> int | None:
    """Id of the parent process; None if the process is gone."""
    fields = _stat(pid)
    return int(fields[1]) if fields else None


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
