"""One process at a time works on a run: a lock on a file in the run's folder, which ends with the process however it ends."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rtl_core.config import RunConfig

POLL_S = 1.0


def lock_path(config: RunConfig) -> Path:
    """The lock of a run."""
    return config.run.folder / "lock"


@asynccontextmanager
async def run_lock(path: Path, holder: dict[str, Any], on_wait: Callable[[str], None]) -> AsyncIterator[None]:
    """Hold the lock at `path`; while another process has it, wait for that one to end.

    Args:
        path: the lock's file; it stays when the lock is given back.
        holder: what to tell others about us, JSON-able; process id and host are added, and what the holder before told beyond that
            stays: a visitor's evaluation leaves word of the deployment that starts the run.
        on_wait: is told once, in words, whom we wait for.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    number = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        told = False
        while not _try(number):
            if not told:
                on_wait(f"waiting: {_in_words(read_holder(path), path)}")
                told = True
            await asyncio.sleep(POLL_S)
        known = {**read_holder(path), "pid": os.getpid(), "host": socket.gethostname(), **holder}
        text = json.dumps(known).encode()
        # In place: on a full disk nothing is lost of what tells who starts the run again.
        os.pwrite(number, text, 0)
        os.ftruncate(number, len(text))
        yield
    finally:
        os.close(number)


def is_held(path: Path) -> bool:
    """Whether a process of this machine holds the lock now."""
    try:
        number = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        return not _try(number)
    finally:
        os.close(number)


def read_holder(path: Path) -> dict[str, Any]:
    """What the present or last holder told about itself; empty when nothing is there."""
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


def _in_words(holder: dict[str, Any], path: Path) -> str:
    place = f"process {holder['pid']} on {holder['host']}" if "pid" in holder else "another process"
    return f"{place} is at work on this run (it holds {path})"
