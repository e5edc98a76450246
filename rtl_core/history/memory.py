"""What the writing process remembers of its latest rollouts, so that it need not ask the database for what it just wrote.

One process writes, so what it inserted anew and has not written about since is known. Keys that it does not remember are
looked up. After any error all is forgotten.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import duckdb

from rtl_core.errors import HistoryError
from rtl_core.history import reading
from rtl_core.history.rows import Place

MOST = 50_000
"""Rollouts that are remembered at most (about 20 MB)."""
_memories: dict[tuple[Path, int, int], Memory] = {}


class Memory:
    """Places of rollouts that this process inserted, and the tables that it has written about each."""

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}
        self._written: dict[str, set[str]] = {}

    def insert(self, rollouts: Iterable[tuple[str, Place]]) -> None:
        """Remember rollouts that are new to the database."""
        if len(self._places) > MOST:
            self.forget()
        for key, place in rollouts:
            self._places[key] = place
            self._written[key] = set()

    def forget(self) -> None:
        """Remember nothing: a transaction failed."""
        self._places.clear()
        self._written.clear()

    def places(self, con: duckdb.DuckDBPyConnection, keys: Sequence[str], path: Path) -> dict[str, Place]:
        """Key -> place of each; HistoryError for one that is not stored."""
        found = {key: self._places[key] for key in keys if key in self._places}
        if len(found) < len(set(keys)):
            found |= reading.places(con, [key for key in keys if key not in found])
            if missing := [key for key in keys if key not in found]:
                raise HistoryError(
                    f"{len(missing)} rollouts are not in {path}, first {missing[0]!r}", "record_rollouts comes first"
                )
        return found

    def known(self, con: duckdb.DuckDBPyConnection, table: str, keys: Sequence[str]) -> list[str]:
        """Those of `keys` of which `table` has a row already; from here on, all of them count as written."""
        asked = [key for key in keys if key not in self._written]
        found = reading.known(con, table, asked) if asked else []
        for key in keys:
            if key in self._written:
                if table in self._written[key]:
                    found.append(key)
                self._written[key].add(table)
        return found


def memory_of(path: Path) -> Memory:
    """The memory that all histories of this process on that very file share."""
    resolved = path.resolve()
    try:
        inode = resolved.stat().st_ino
    except FileNotFoundError:
        return Memory()
    return _memories.setdefault((resolved, inode, os.getpid()), Memory())
