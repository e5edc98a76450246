"""What a killed command left running. A temporary Prefect server, for one, does not notice that its run is gone.

Every command that starts processes marks its own environment, which they inherit; the mark names the command's process. The
next command ends whatever carries the mark of a process that is no more.
"""

from __future__ import annotations

import contextlib
import os
import signal

from rtl_distill.operations import processes

MARK = "RTL_DISTILL_OWNER"
"""Not the name that version 0.1.0 uses: it reads another format there, and would take these processes for orphans."""


def mark_this_process() -> None:
    """Let everything that this process starts from now on be recognised as its own."""
    os.environ[MARK] = f"{processes.namespace()}.{os.getpid()}.{processes.started(os.getpid())}"


def end_orphans() -> list[int]:
    """Kill the processes that dead commands of this user left. Returns their ids.

    A command in a container counts its processes from 1 on; whether it lives cannot be told from outside, so its own are left alone.
    """
    ended = []
    here = str(processes.namespace())
    for pid in processes.pids():
        place, _, owner = (processes.variable(pid, MARK) or "").partition(".")
        number, _, started = owner.partition(".")
        if place != here or pid == os.getpid():
            continue
        # The start time tells a command from a later process that was given its number.
        if not number.isdigit() or processes.started(int(number)) == started or int(number) == pid:
            continue
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
            ended.append(pid)
    return ended
