"""Copies of the blocks that a commit may overwrite, kept beside the file until the commit is complete.

DuckDB writes new blocks to free space and then one header, with one exception: a metadata block with free space is
rewritten in place (`MetadataManager::Flush`). A kill -9 during that write leaves a block with a wrong
checksum, and the whole file unreadable. So blocks with free space are first copied to FILE.undo. The next
process that finds that file, while no other process uses the history and its header is unchanged, restores
the copies: the state before the commit.
"""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path
from typing import BinaryIO

import duckdb

from rtl_core.errors import InfrastructureError

HEADERS = 3 * 4096
"""Bytes before block 0: the main header and the two headers that commits write alternately."""
_RECORD = struct.Struct("<QQ")
"""Offset in the file and length of a copied block, in bytes."""


def path_of(history: Path) -> Path:
    return history.with_name(f"{history.name}.undo")


def keep(con: duckdb.DuckDBPyConnection, file: BinaryIO, history: Path) -> None:
    """Copy the blocks of `file` that the next commit on `con`, which has this file attached, may overwrite.

    Raises InfrastructureError when the disk fails.
    """
    (size,) = con.execute(
        "SELECT block_size FROM pragma_database_size() WHERE database_name = 'history'"
    ).fetchall()[0]
    with_room = con.execute(
        "SELECT block_id FROM pragma_metadata_info('history') WHERE len(free_list) > 0"
    ).fetchall()
    target = path_of(history)
    fresh = target.with_name(f"{target.name}.new")
    try:
        with fresh.open("wb") as copy:
            copy.write(_read(file, 0, HEADERS))
            for (block,) in with_room:
                at = HEADERS + block * size
                copy.write(_RECORD.pack(at, size) + _read(file, at, size))
            copy.flush()
            os.fsync(copy.fileno())  # the renamed file is complete even after a power failure
        fresh.replace(target)
    except OSError as error:
        raise InfrastructureError(
            f"{target} could not be written: {error}", "is the disk full?"
        ) from error


def drop(history: Path) -> None:
    """Delete the copies: the commit is complete."""
    path_of(history).unlink(missing_ok=True)


def put_back(history: Path) -> None:
    """Undo an incomplete commit, if there is one; does nothing while another process has the file open, or
    where it is read-only.

    Raises InfrastructureError when the disk fails.
    """
    try:
        copies = memoryview(path_of(history).read_bytes())
        file = history.open("r+b")
    except OSError:
        return
    try:
        with file:
            try:  # the lock that DuckDB takes; closing the file releases it
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return
            if _read(file, 0, HEADERS) != copies[:HEADERS]:
                return
            at = HEADERS
            while at < len(copies):
                location, size = _RECORD.unpack_from(copies, at)
                at += _RECORD.size + size
                os.pwrite(file.fileno(), copies[at - size : at], location)
            os.fsync(file.fileno())
            drop(history)
    except OSError as error:
        raise InfrastructureError(
            f"{history} could not be restored from {path_of(history)}: {error}"
        ) from error


def _read(file: BinaryIO, at: int, size: int) -> bytes:
    return os.pread(file.fileno(), size, at)
