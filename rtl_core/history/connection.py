"""Short connections to a history file: open, one transaction, close.

DuckDB allows one writing process or several readers, so no process keeps a connection open. A process that
finds the file locked retries with jitter until a timeout. Within a process, connections to one file wait
for a lock of our own, since DuckDB refuses to open a file twice in different modes.

Queries may contain a user's text, so extensions are never installed or loaded automatically.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import math
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import duckdb

from rtl_core.errors import HistoryError, InfrastructureError
from rtl_core.history import schema, undo
from rtl_core.history.signals import signals_later
from rtl_grader.words import did_you_mean

WRITE_PATIENCE_S = 600.0
"""Timeout of a writer that waits for the file: a program that keeps it open for a while must not end a run of days."""
READ_PATIENCE_S = 30.0
WARN_AFTER_S = 10.0
"""Seconds of waiting after which the log names the program that holds the file."""
HURRIED_S = 5.0
"""Timeout once the process is asked to end: long enough for a reader, not for a program that keeps the file open."""
CHECK_PATH = "check the path, its permissions and the free space on its disk"
OTHER_PROGRAM = (
    "close the other program, or let it work on a copy made by `rtl-distill admin snapshot`"
)
own_readers: set[int] = set()
"""Ids of processes that this one started to read histories (observe/live_report.py)."""

_locks: dict[Path, threading.RLock] = {}
_engines: dict[tuple[Path, int, bool], duckdb.DuckDBPyConnection] = {}
_checked: set[tuple[Path, int]] = set()
"""Files (path, inode) whose version and views this process has checked."""
_hurried_at = math.inf
"""When this process was asked to end (monotonic clock)."""


class HistoryBusyError(HistoryError):
    """Another process held the file for longer than the timeout; can be retried."""


@contextlib.contextmanager
def hurried() -> Iterator[Callable[[], None]]:
    """Yield a function that any thread may call: from then to the end of the block, waits for a file time
    out after `HURRIED_S`."""
    global _hurried_at

    def hurry() -> None:
        global _hurried_at
        _hurried_at = time.monotonic()

    try:
        yield hurry
    finally:
        _hurried_at = math.inf


@contextlib.contextmanager
def connect(
    path: Path, *, read_only: bool, patience_s: float | None = None
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a checked connection. Writers create a missing file and renew views of another release; readers do
    neither.

    Raises HistoryError for a file that is missing (readers), damaged, not a history, or of another version,
    HistoryBusyError when it stayed locked for `patience_s`, and InfrastructureError when the disk fails;
    also from within the block.
    """
    path = _resolved(path)
    if patience_s is None:
        patience_s = READ_PATIENCE_S if read_only else WRITE_PATIENCE_S
    with _locks.setdefault(path, threading.RLock()):
        if not path.exists():
            if read_only:
                files = (file.name for file in path.parent.glob("*.duckdb"))
                how = "start a run first, or name the file (--db, or run.history for a run)"
                raise HistoryError(
                    f"there is no history at {path}", did_you_mean(path.name, files, how)
                )
            create_file(path)
        if not read_only and _identity(path) not in _checked:
            # Check the file before opening it in a mode that may change it.
            with connect(path, read_only=True, patience_s=patience_s):
                pass
        key = (path, os.getpid(), read_only)
        # Keep this handle open longer than DuckDB's: closing any handle on a file releases this process's locks on it.
        with path.open("rb") as file:
            engine = _engines.pop(key, None) or _new_engine(read_only=read_only)
            con = engine.cursor()
            try:
                with signals_later(con) as raised:
                    try:
                        _attach(con, path, raised, read_only=read_only, patience_s=patience_s)
                        if _identity(path) not in _checked:
                            _check(con, path, file, read_only=read_only)
                            if not read_only:
                                _checked.add(_identity(path))
                        if not read_only:
                            undo.keep(con, file, path)
                        yield con
                    finally:
                        _detach(con)
                        _engines[key] = engine
                    if not read_only:
                        undo.drop(path)
            except duckdb.Error as error:
                _raise_if_the_file_fails(error, path, read_only=read_only)
                raise
            finally:
                con.close()
                if (
                    _engines.get(key) is not engine
                ):  # it may still hold the file, so that no other can open it
                    engine.close()


def _resolved(path: Path) -> Path:
    """The path without links: DuckDB's log and our undo file are beside the file, not beside a link to it.

    Raises HistoryError for a path that is not UTF-8.
    """
    if str(path) != os.fsencode(path).decode("utf-8", "replace"):
        raise HistoryError(
            f"the path {str(path)!r} is not UTF-8",
            "use another path, and set a UTF-8 locale: LC_ALL=C.UTF-8",
        )
    return path.resolve()


def create_file(path: Path) -> None:
    """Create an empty history at `path` atomically, unless another process did so first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    creator = f"{os.getpid()}-{threading.get_ident()}"
    fresh = path.with_name(f".{path.name}.{creator}.new")
    try:
        with duckdb.connect(str(fresh), config=_CONFIG) as con:
            schema.create(con)
            con.execute("CHECKPOINT")  # closing the file hides an error of the checkpoint
        try:
            os.link(fresh, path)  # a rename would replace the file of another process
        except FileExistsError:
            pass
        except OSError:  # FAT, exFAT and some network file systems have no links
            if not path.exists():
                fresh.rename(path)
    except duckdb.Error as error:
        raise HistoryError(
            f"{path} cannot be created: {_first_line(str(error))}", CHECK_PATH
        ) from error
    finally:
        fresh.unlink(missing_ok=True)
        Path(f"{fresh}.wal").unlink(missing_ok=True)


def forget_checks() -> None:
    """Check every file again before writing to it, as a newly started process does."""
    _checked.clear()


def _identity(path: Path) -> tuple[Path, int]:
    return path, path.stat().st_ino


ROW_GROUP = 8192
"""Rows per row group. Each commit rewrites a table's last, partly filled group: with DuckDB's default of
122,880 rows the cost of storing a step grows for 240 steps of 512 answers. Groups of 2,048 rows make files
twice as large and queries slower."""
_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    # So that the oldest DuckDB that pyproject.toml allows can read our files.
    "storage_compatibility_version": "v1.5.0",
}


def _new_engine(*, read_only: bool) -> duckdb.DuckDBPyConnection:
    """An in-memory DuckDB, kept for further connections: attaching a file to it takes 2 ms, starting a new
    one takes 20."""
    engine = duckdb.connect(":memory:", config=_CONFIG)
    # The file is closed after every commit anyway, so skip the write-ahead log.
    engine.execute("SET checkpoint_threshold = '1KB'").fetchall()
    if not read_only:  # a step has too few rows to parallelise, and simulators need the cores
        engine.execute("SET threads = 1").fetchall()
    return engine


def _attach(
    con: duckdb.DuckDBPyConnection,
    path: Path,
    raised: list[BaseException],
    *,
    read_only: bool,
    patience_s: float,
) -> None:
    """Attach the file as `history`, the default database. Does not wait once the handler of a signal has
    raised an exception."""
    quoted = str(path).replace("'", "''")
    how = "READ_ONLY" if read_only else f"ROW_GROUP_SIZE {ROW_GROUP}"
    statement = f"ATTACH '{quoted}' AS history (TYPE duckdb, {how})"
    begun, warned = time.monotonic(), False

    def waited_enough() -> bool:
        limit = min(begun + patience_s, max(begun, _hurried_at) + HURRIED_S)
        return bool(raised) or time.monotonic() >= limit

    with _turnstile(path.parent, waited_enough):
        while True:
            undo.put_back(path)
            try:
                con.execute(statement).fetchall()
                break
            except duckdb.IOException as error:
                text = str(error)
                if "set lock" not in text:
                    raise unreadable(path, text) from error
                if waited_enough():
                    raise HistoryBusyError(
                        f"{path} stayed locked for {time.monotonic() - begun:.0f} s: {_first_line(text)}",
                        _remedy(text),
                    ) from error
                if not warned and time.monotonic() - begun > WARN_AFTER_S:
                    warned = True
                    logging.getLogger("rtl_distill").warning(
                        f"{path} is locked, waiting for up to {patience_s:.0f} s: {_first_line(text)}; {_remedy(text)}"
                    )
            except (
                duckdb.Error
            ) as error:  # a damaged header or catalog raises errors of several types
                raise unreadable(path, str(error)) from error
            time.sleep(random.uniform(0.001, 0.004) * (50 if warned else 1))
    con.execute("USE history").fetchall()


@contextlib.contextmanager
def _turnstile(folder: Path, waited_enough: Callable[[], bool]) -> Iterator[None]:
    """Let one process at a time wait for the file, so that a writer that never pauses cannot starve a reader.

    A lock (flock) on the folder, held until the file is attached; it leaves no file behind and ends with its process.
    Where folders cannot be locked (some network file systems), waiting is only less fair.
    """
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield
        return
    try:
        while not waited_enough():
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(random.uniform(0.001, 0.004))
            except OSError:
                break
        yield
    finally:
        os.close(handle)


def _detach(con: duckdb.DuckDBPyConnection) -> None:
    """Roll back what was not committed, and close the file. Fails after a commit for which the disk has no
    room: the engine is unusable."""
    with contextlib.suppress(duckdb.TransactionException):
        con.execute("ROLLBACK").fetchall()
    con.execute("USE memory").fetchall()
    con.execute("DETACH DATABASE IF EXISTS history").fetchall()


def _check(
    con: duckdb.DuckDBPyConnection, path: Path, file: BinaryIO, *, read_only: bool
) -> None:
    """Refuse a file of another version; a writer renews the views of another release."""
    views = schema.views_of(con, path)
    if not read_only and views != schema.views_hash():
        undo.keep(con, file, path)
        schema.renew_views(con)


def _raise_if_the_file_fails(error: duckdb.Error, path: Path, *, read_only: bool) -> None:
    """Raise a better error where a damaged file or a full disk is the cause, and not the statement."""
    text = str(error).lower()
    damaged = any(
        words in text for words in ("could not read enough bytes", "corrupt", "checksum")
    )
    if damaged and not isinstance(
        error, duckdb.ProgrammingError
    ):  # which repeats words of the statement
        raise unreadable(path, str(error)) from error
    failed = (
        isinstance(error, (duckdb.IOException, duckdb.OutOfMemoryException))
        or "could not write" in text
    )
    if failed and not read_only:
        raise InfrastructureError(
            f"the history at {path} could not be written: {error}", "is the disk full?"
        ) from error


_IN_USE = (
    "already attached",
    "already exists",
    "different configuration",
    "interrupted",
    "out of memory",
)
"""Words of errors that say nothing about the file: a program has it open in this process, or DuckDB was disturbed."""


def unreadable(path: Path, text: str) -> HistoryError:
    """The error for a file that DuckDB cannot read or open."""
    text = text.replace(str(path), path.name)  # a folder's name is no word of DuckDB
    if any(words in text.lower() for words in _IN_USE):
        return HistoryBusyError(
            f"{path} cannot be opened now: {_first_line(text)}", OTHER_PROGRAM
        )
    if "Cannot open file" in text:
        return HistoryError(
            f"{path} cannot be opened: {_first_line(text)}",
            f"{CHECK_PATH}, or name another file (--db, or run.history for a run)",
        )
    if "newer" in text.lower() or "version" in text.lower():
        return HistoryError(
            f"{path} was written by another version of DuckDB than {duckdb.__version__}: {_first_line(text)}",
            "pip install --upgrade duckdb, within what pyproject.toml allows, or open it with the "
            "program that wrote it and export the "
            "runs (`rtl-distill admin export`); the file was left untouched",
        )
    if "WAL" in text:
        return HistoryError(
            f"{path} and {path}.wal do not belong together: {_first_line(text)}",
            "remove the .wal if the history itself was deleted or replaced on purpose; both were left untouched",
        )
    return HistoryError(
        f"{path} cannot be read as a DuckDB file: {_first_line(text)}",
        "restore it from a snapshot, or name another file (--db, or run.history for a run); it was left untouched",
    )


def _remedy(text: str) -> str:
    """What to do about the process that holds a file, which DuckDB's message names."""
    own = any(f"(PID {pid})" in text for pid in own_readers)
    return "this process writes the run's report and ends by itself" if own else OTHER_PROGRAM


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else "no message"
