"""What a commit may overwrite, kept beside the file until the commit is whole.

DuckDB writes new blocks to free places and then one header, with one exception: a metadata block with room left is
written again in place (`MetadataManager::Flush`). A kill -9 in the middle of that write leaves a block whose checksum is
wrong, and the whole file unreadable. So the blocks with room are copied to FILE.undo first. Who next finds that file, no
process at the history and the header unchanged puts the copies back: that is the state before the commit.
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
"""Bytes before block 0: the main header and the two that commits write in turn."""
_RECORD = struct.Struct("<QQ")
"""Of each block kept: where it begins in the file, and its length, in bytes."""


def path_of(history: Path) -> Path:
    return history.with_name(f"{history.name}.undo")


def keep(con: duckdb.DuckDBPyConnection, file: BinaryIO, history: Path) -> None:
    """Copy what the next commit on `con`, which has the history attached, may overwrite in `file`, the same file.

    Raises InfrastructureError when the disk fails.
    """
    (size,) = con.execute("SELECT block_size FROM pragma_database_size() WHERE database_name = 'history'").fetchall()[0]
    with_room = con.execute("SELECT block_id FROM pragma_metadata_info('history') WHERE len(free_list) > 0").fetchall()
    target = path_of(history)
    fresh = target.with_name(f"{target.name}.new")
    try:
        with fresh.open("wb") as copy:
            copy.write(_read(file, 0, HEADERS))
            for (block,) in with_room:
                at = HEADERS + block * size
                copy.write(_RECORD.pack(at, size) + _read(file, at, size))
            copy.flush()
            os.fsync(copy.fileno())  # so that the name never stands for half a copy, even after a power cut
        fresh.replace(target)
    except OSError as error:
        raise InfrastructureError(f"{target} could not be written: {error}", "is the disk full?") from error


def drop(history: Path) -> None:
    """The commit is whole."""
    path_of(history).unlink(missing_ok=True)


def put_back(history: Path) -> None:
    """Undo a commit that ended half way, if there is one; nothing while another process has the file, or where it may only be read.

    Raises InfrastructureError when the disk fails.
    """
    try:
        kept = memoryview(path_of(history).read_bytes())
        file = history.open("r+b")
    except OSError:
        return
    try:
        with file:
            try:  # the lock that DuckDB takes; closing the file lets go of it
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return
            if _read(file, 0, HEADERS) != kept[:HEADERS]:
                return
            at = HEADERS
            while at < len(kept):
                location, size = _RECORD.unpack_from(kept, at)
                at += _RECORD.size + size
                os.pwrite(file.fileno(), kept[at - size : at], location)
            os.fsync(file.fileno())
            drop(history)
    except OSError as error:
        raise InfrastructureError(f"{history} could not be put back as {path_of(history)} has it: {error}") from error


def _read(file: BinaryIO, at: int, size: int) -> bytes:
    return os.pread(file.fileno(), size, at)
