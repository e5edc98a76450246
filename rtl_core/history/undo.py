"""What a commit may overwrite, kept beside the file until the commit is whole.

DuckDB writes new blocks to free places and then one header, with one exception: a metadata block with room left is
written again in place (`MetadataManager::Flush`). A kill -9 or a power cut in the middle of that write leaves a block whose
checksum is wrong, and the whole file unreadable. So the blocks with room are copied to FILE.undo first. Who next finds that
file, no process at the history and the header unchanged puts the copies back: that is the state before the commit.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from pathlib import Path
from typing import BinaryIO

import duckdb

HEADERS = 3 * 4096
"""Bytes before block 0: the main header and the two that commits write in turn."""
_RECORD = struct.Struct("<QQ")
"""Of each block kept: where it begins in the file, and its length, in bytes."""


def path_of(history: Path) -> Path:
    return history.with_name(f"{history.name}.undo")


def keep(con: duckdb.DuckDBPyConnection, file: BinaryIO, history: Path) -> None:
    """Copy what the next commit on `con`, which has the history attached, may overwrite in `file`, the same file."""
    (size,) = con.execute("SELECT block_size FROM pragma_database_size() WHERE database_name = 'history'").fetchall()[0]
    with_room = con.execute("SELECT block_id FROM pragma_metadata_info('history') WHERE len(free_list) > 0").fetchall()
    target = path_of(history)
    fresh = target.with_name(f"{target.name}.new")
    with fresh.open("wb") as copy:
        copy.write(_read(file, 0, HEADERS))
        for (block,) in with_room:
            at = HEADERS + block * size
            copy.write(_RECORD.pack(at, size) + _read(file, at, size))
        copy.flush()
        os.fsync(copy.fileno())
    fresh.replace(target)


def drop(history: Path) -> None:
    """The commit is whole."""
    path_of(history).unlink(missing_ok=True)


def put_back(history: Path) -> None:
    """Undo a commit that ended half way, if there is one and we may write; nothing while another process has the file."""
    try:
        kept = memoryview(path_of(history).read_bytes())
        file = history.open("r+b")
    except OSError:
        return
    with file, contextlib.suppress(OSError):
        # The lock that DuckDB takes. Closing the file lets go of it.
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _read(file, 0, HEADERS) == kept[:HEADERS]:
            at = HEADERS
            while at < len(kept):
                location, size = _RECORD.unpack_from(kept, at)
                at += _RECORD.size + size
                os.pwrite(file.fileno(), kept[at - size : at], location)
            os.fsync(file.fileno())
            drop(history)


def _read(file: BinaryIO, at: int, size: int) -> bytes:
    return os.pread(file.fileno(), size, at)
