"""Whose transaction a call belongs to: one of its own, or the one that its thread has open on the file already."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import duckdb

from rtl_core.errors import HistoryError, InfrastructureError
from rtl_core.history import connection
from rtl_core.history.spent import Meter, Spent

_connections = threading.local()
"""`by_path`: the connections that this thread holds open; whatever it does meanwhile goes through them."""


class Transactions:
    """Short transactions on the history at `path`, and what they cost. Nothing is opened before the first.

    Raises HistoryError for a file that is broken, foreign or newer, and leaves it untouched; HistoryBusyError when it
    stayed locked; InfrastructureError when the disk fails.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = Path(path)
        self.read_only = read_only
        self._prepared = False
        self._meter = Meter()

    @property
    def spent(self) -> Spent:
        """What all uses of this object have taken so far."""
        return self._meter.total

    @contextlib.contextmanager
    def batch(self) -> Iterator[None]:
        """All `record_*` calls of this thread inside the block are one transaction."""
        with self._writing():
            yield

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """All questions of this thread inside the block share one connection, which saves an opening each.
        Wait for nothing inside it, and write nothing."""
        with self._reading() as con:
            held = _held()
            outermost = self.path.resolve() not in held
            if outermost:
                held[self.path.resolve()] = con
            try:
                yield
            finally:
                if outermost:
                    del held[self.path.resolve()]

    @contextlib.contextmanager
    def _writing(self) -> Iterator[duckdb.DuckDBPyConnection]:
        if self.read_only:
            raise HistoryError(f"{self.path} was opened to be read only", "the flow's process alone writes the history")
        inner = _held().get(self.path.resolve())
        if inner is not None:
            yield inner
            return
        with self._meter.measure(writing=True), connection.connect(self.path, read_only=False) as con:
            held = _held()
            held[self.path.resolve()] = con
            try:
                con.execute("BEGIN")
                yield con
                con.execute("COMMIT")
            except BaseException as error:
                if isinstance(error, duckdb.Error) and connection.is_damage(error):
                    raise connection.unreadable(self.path, str(error)) from error
                if isinstance(error, (duckdb.IOException, duckdb.OutOfMemoryException)):
                    words = f"the history at {self.path} could not be written: {error}"
                    raise InfrastructureError(words, "is the disk full?") from error
                raise
            finally:
                del held[self.path.resolve()]
        self._prepared = True

    @contextlib.contextmanager
    def _reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        inner = _held().get(self.path.resolve())
        if inner is not None:
            yield inner
            return
        if not self.read_only and not self._prepared:
            with connection.connect(self.path, read_only=False):
                self._prepared = True
        with self._meter.measure(writing=False), connection.connect(self.path, read_only=True) as con:
            try:
                yield con
            except duckdb.Error as error:
                if connection.is_damage(error):
                    raise connection.unreadable(self.path, str(error)) from error
                raise


def _held() -> dict[Path, duckdb.DuckDBPyConnection]:
    held: dict[Path, duckdb.DuckDBPyConnection] = _connections.__dict__.setdefault("by_path", {})
    return held
