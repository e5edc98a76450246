"""A copy of the history to work on at leisure: taken between two transactions of a writer, whole and of the current schema."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from rtl_core.errors import HistoryError, InfrastructureError
from rtl_core.history import connection


def take_snapshot(source: Path, target: Path, *, overwrite: bool = False) -> Path:
    """Copy the history at `source` to `target`, migrated if it is of an older schema. Returns `target`.

    The source is read only and held for as long as copying the file takes; a writer waits meanwhile. Raises HistoryError
    when the source cannot be read or the target exists, InfrastructureError when the copy fails.
    """
    if target.resolve() == source.resolve():
        raise HistoryError(f"{target} is the history itself", "name another file")
    if target.exists() and not overwrite:
        raise HistoryError(f"{target} exists", "name another file, or replace it with --force")
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with connection.connect(source, read_only=True, old_is_fine=True):
            _copy(source, fresh)
            # What a killed writer had committed but not yet moved into the file itself.
            log = Path(f"{source}.wal")
            if log.exists():
                _copy(log, Path(f"{fresh}.wal"))
        with connection.connect(fresh, read_only=False):
            pass
        os.replace(fresh, target)
    finally:
        for left in (fresh, Path(f"{fresh}.wal")):
            left.unlink(missing_ok=True)
    return target


def _copy(source: Path, target: Path) -> None:
    """Copy a file in a process of its own.

    DuckDB's lock is a POSIX one: whoever closes any handle of the file within this process would give the lock away.
    """
    program = shutil.which("cp")
    if program is None:
        raise InfrastructureError("there is no `cp` on this machine", "install coreutils")
    done = subprocess.run([program, "--reflink=auto", "--", str(source), str(target)], capture_output=True, text=True)
    if done.returncode != 0:
        raise InfrastructureError(f"{source} could not be copied: {done.stderr.strip()}", "is the disk full?")
