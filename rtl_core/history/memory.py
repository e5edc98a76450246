"""What the writing process remembers of its latest rollouts, so that it need not ask the database for what it just wrote.

One process writes, so what it inserted anew and has not written about since is known. Keys that it does not remember are
looked up. After any error all is forgotten.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import duckdb

from rtl_core.errors import HistoryError
from rtl_core.history import reading
from rtl_core.history.rows import Place
from rtl_core.types.rollout import Rollout

MOST = 50_000
"""Rollouts that are remembered at most (about 20 MB)."""
_memories: dict[tuple[Path, int, int], Memory] = {}


class Memory:
    """Places of rollouts that this process inserted, and the tables that it has written about each."""

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}
        self._written: dict[str, set[str]] = {}
        self._prompts: set[str] = set()
        self._free_from: dict[str, int] = {}
        """Run -> the first train step of which nothing was stored when this process looked."""
        self._filled: set[tuple[str, int]] = set()
        """(run, train step) of which this process has inserted rollouts."""

    def insert(self, rollouts: Iterable[tuple[str, Place]]) -> None:
        """Remember rollouts that are new to the database."""
        if len(self._places) > MOST:
            self.forget()
        for key, place in rollouts:
            self._places[key] = place
            self._written[key] = set()
            run, purpose, _, _, step, _ = place
            if purpose == "train":
                self._filled.add((run, step))

    def forget(self) -> None:
        """Remember nothing: a transaction failed."""
        self._places.clear()
        self._written.clear()
        self._prompts.clear()
        self._free_from.clear()
        self._filled.clear()

    def stored(self, con: duckdb.DuckDBPyConnection, rollouts: Mapping[str, Rollout]) -> set[str]:
        """Those keys of `rollouts` that the database holds.

        Only the process that holds a run's lock trains it, so of a train step later than all that were there when it first
        looked it knows every rollout. Evaluations have no such owner and are always asked for.
        """
        asked = []
        for key, r in rollouts.items():
            if r.purpose == "train" and r.run not in self._free_from:
                self._free_from[r.run] = reading.first_free_step(con, r.run)
            if key not in self._places and (r.purpose != "train" or r.step < self._free_from[r.run]):
                asked.append(key)
        found = {key for key in rollouts if key in self._places}
        return found | set(reading.known(con, "rollouts", asked))

    def is_empty(self, run: str, step: int) -> bool:
        """Whether it is certain, without a look at the database, that nothing is stored of a train step."""
        return step >= self._free_from.get(run, sys.maxsize) and (run, step) not in self._filled

    def new_prompts(self, con: duckdb.DuckDBPyConnection, prompts: Sequence[str]) -> set[str]:
        """Those prompts that the database does not hold; from here on, all of them count as stored."""
        asked = [p for p in prompts if p not in self._prompts]
        new = set(asked) - set(reading.known(con, "prompts", asked, column="prompt"))
        if len(self._prompts) > MOST:
            self._prompts.clear()
        self._prompts.update(prompts)
        return new

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
