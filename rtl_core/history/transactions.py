"""Opens a transaction on the history, or joins the one that this thread holds; measures its cost."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb

from rtl_core.errors import HistoryError
from rtl_core.history import connection

_connections = threading.local()
"""`by_path`: the connections that this thread holds open; its calls reuse them."""


@dataclass
class Spent:
    """Seconds that a process spent in its history."""

    busy_s: float = 0.0
    """Wall time of all calls, including waiting for other processes."""
    waited_s: float = 0.0
    """The part of it that blocked an event loop: calls on the loop's thread."""
    cpu_s: float = 0.0
    """CPU time of the calling threads (the writer's DuckDB has no threads of its own)."""


class Transactions:
    """Short transactions on the history at `path`, and their cost. Nothing is opened before the first.

    Raises HistoryError for a file that is damaged, not a history or of another version, and leaves it
    untouched;
    HistoryBusyError when it stayed locked; InfrastructureError when the disk fails.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = Path(path)
        self.read_only = read_only
        self._prepared = False
        self._spent = Spent()
        self._spent_lock = threading.Lock()

    def take_spent(self) -> Spent:
        """The cost of all uses of this object, by all threads, since the last call."""
        with self._spent_lock:
            taken, self._spent = self._spent, Spent()
        return taken

    @contextlib.contextmanager
    def batch(self) -> Iterator[None]:
        """Make all `record_*` calls of this thread inside the block one transaction."""
        with self._writing():
            yield

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Let all queries of this thread inside the block share one connection. Neither wait nor write inside it."""
        with self._reading() as con, self._holding(con):
            yield

    @contextlib.contextmanager
    def _holding(self, con: duckdb.DuckDBPyConnection) -> Iterator[None]:
        """Let calls of this thread inside the block reuse a connection."""
        connections, path = _own_connections(), self.path.resolve()
        outermost = path not in connections
        connections[path] = con
        try:
            yield
        finally:
            if outermost:
                del connections[path]

    @contextlib.contextmanager
    def _measured(self) -> Iterator[None]:
        wall, cpu = time.perf_counter(), time.thread_time()
        try:
            yield
        finally:
            wall, cpu = time.perf_counter() - wall, time.thread_time() - cpu
            with self._spent_lock:
                self._spent.busy_s += wall
                self._spent.waited_s += wall if asyncio._get_running_loop() is not None else 0.0
                self._spent.cpu_s += cpu

    @contextlib.contextmanager
    def _writing(self) -> Iterator[duckdb.DuckDBPyConnection]:
        if self.read_only:
            raise HistoryError(
                f"{self.path} was opened as read-only",
                "only the flow's process writes the history",
            )
        inner = _own_connections().get(self.path.resolve())
        if inner is not None:
            yield inner
            return
        with (
            self._measured(),
            connection.connect(self.path, read_only=False) as con,
            self._holding(con),
        ):
            con.execute("BEGIN")
            yield con
            con.execute("COMMIT")
        self._prepared = True

    @contextlib.contextmanager
    def _reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        inner = _own_connections().get(self.path.resolve())
        if inner is not None:
            yield inner
            return
        if not self.read_only and not self._prepared:
            with connection.connect(self.path, read_only=False):
                self._prepared = True
        patience_s = (
            connection.READ_PATIENCE_S if self.read_only else connection.WRITE_PATIENCE_S
        )
        with (
            self._measured(),
            connection.connect(self.path, read_only=True, patience_s=patience_s) as con,
        ):
            yield con


def _own_connections() -> dict[Path, duckdb.DuckDBPyConnection]:
    connections: dict[Path, duckdb.DuckDBPyConnection] = _connections.__dict__.setdefault(
        "by_path", {}
    )
    return connections
