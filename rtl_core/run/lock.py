"""The lock of a run: a file lock that lets one process at a time work on it and is released however the
process ends."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rtl_core.config import RunConfig
from rtl_core.types.tell import Tell

LOCK = "lock"
"""Name of the lock file in a run's folder."""
POLL_S = 1.0


def lock_path(config: RunConfig) -> Path:
    """Path of a run's lock file."""
    return config.run.folder / LOCK


@asynccontextmanager
async def run_lock(path: Path, holder: dict[str, Any], on_wait: Tell) -> AsyncIterator[None]:
    """Hold the lock at `path`, waiting while another process holds it.

    Args:
        path: the lock file; it is not deleted when the lock is released.
        holder: information about this process for others, JSON-serializable; process id and host are added.
            Other keys of the previous holder stay, so that an evaluation by a visitor does not erase the
            deployment that starts the run.
        on_wait: called once with a message if the lock is held by another process.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    number = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not _try(number):
            other, place = read_holder(path), "another process"
            if "pid" in other:
                place = f"process {other['pid']} on {other['host']}"
            on_wait(f"waiting: {place} is working on this run (it holds {path})")
            await asyncio.sleep(POLL_S)
            while not _try(number):
                await asyncio.sleep(POLL_S)
        this = {"pid": os.getpid(), "host": socket.gethostname()}
        text = json.dumps({**read_holder(path), **this, **holder}).encode()
        # In place: a full disk must not erase which deployment restarts the run.
        os.pwrite(number, text, 0)
        os.ftruncate(number, len(text))
        yield
    finally:
        os.close(number)


def is_held(path: Path) -> bool:
    """Whether a process on this machine holds the lock now."""
    try:
        number = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        return not _try(number)
    finally:
        os.close(number)


def read_holder(path: Path) -> dict[str, Any]:
    """Return the information about the current or last holder; empty if there is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return {}


def _try(number: int) -> bool:
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
