"""What a killed command left running. A temporary Prefect server, for one, does not notice that its run is gone.

Every command that starts processes marks its own environment, which they inherit; the mark names the command's process. The
next command ends whatever carries the mark of a process that is no more.
"""

from __future__ import annotations

import contextlib
import os
import signal

from operations import processes

MARK = "RTL_DISTILL_COMMAND"


def mark_this_process() -> None:
    """Let everything that this process starts from now on be recognised as its own."""
    os.environ[MARK] = f"{os.getpid()}.{processes.started(os.getpid())}"


def end_orphans() -> list[int]:
    """Kill the processes that dead commands of this user left. Returns their ids."""
    ended = []
    for pid in processes.pids():
        owner = processes.variable(pid, MARK)
        if owner is None or pid == os.getpid():
            continue
        number, _, started = owner.partition(".")
        # The start time tells a command from a later process that was given its number.
        if not number.isdigit() or processes.started(int(number)) == started or int(number) == pid:
            continue
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
            ended.append(pid)
    return ended
