"""Results of reading problems: problems, broken lines, and problems left out."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rtl_grader.problems.design import Design
from rtl_grader.problems.near_duplicates import STRICT, NearDuplicate, pairs
from rtl_grader.types.problem import Problem
from rtl_grader.words import first_lines

MEND = "  -> mend what is broken where its line says; until then it is left out"
"""Remedy after all that is broken in a set."""
SplitBy = Literal["design", "id"]
"""What a split keeps together: `problems.split` of a configuration."""


@dataclass(frozen=True)
class BrokenLine:
    """A line that is not a usable problem."""

    file: str
    line: int
    """Counted from 1."""
    id: str | None
    field: str
    """Dotted name of the invalid field (`input.prompt`), or `line` when the line is not a JSON object."""
    reason: str
    source: str
    """Short name of the set, as in `Problem.source`."""

    @property
    def fault(self) -> str:
        """What is wrong with which field."""
        return self.reason if self.field == "line" else f"{self.field}: {self.reason}"

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}"
        return ": ".join(filter(None, (place, self.id, self.fault)))


@dataclass(frozen=True)
class LeftOut:
    """A valid problem that cannot be graded here, and why."""

    id: str
    reason: str
    source: str
    """Short name of the set, as in `Problem.source`."""


@dataclass(frozen=True)
class ProblemSet:
    """Contents of a file or folder, in its order."""

    problems: list[Problem] = field(default_factory=list)
    broken: list[BrokenLine] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)


@dataclass
class LoadedProblems:
    """All problems of a run by split, and what could not be used."""

    train: list[Problem] = field(default_factory=list)
    heldout: list[Problem] = field(default_factory=list)
    broken: list[BrokenLine] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    moved: list[NearDuplicate] = field(default_factory=list)
    """Training problems that moved to the held-out side because they belong to a held-out problem."""
    split: SplitBy = "design"
    """How file sources are split; set before they are read."""
    designs: dict[str, Design] = field(default_factory=dict)
    """Problem id -> its design, for file sources with `split` "design"."""
    heldout_split: str = "heldout"
    """Which held-out specifications were loaded: `heldout`, or `test`, which is reserved for final figures."""

    @property
    def compared_designs(self) -> dict[str, Design] | None:
        """The designs that a split compares; None for a split by `id`."""
        return self.designs if self.split == "design" else None

    @property
    def every(self) -> list[Problem]:
        """The problems of both splits."""
        return [*self.train, *self.heldout]

    @property
    def left_out_in_words(self) -> list[str]:
        """What was left out: a line for each source and reason."""
        return [f"{entry.id}: {entry.reason}" for entry in by_reason(self.left_out)]

    @property
    def broken_in_words(self) -> list[str]:
        """What could not be read: a line each, or the number of lines when there are many."""
        return first_lines(self.broken)

    @property
    def moved_in_words(self) -> list[str]:
        """The problems that moved to the held-out side: a line each, or their number when there are many."""
        return first_lines(self.moved)

    @property
    def fingerprint(self) -> str:
        """SHA-256 (hex) over the fingerprints of both splits, in any order."""
        rows = sorted(f"train {problem.fingerprint}" for problem in self.train)
        rows += sorted(f"heldout {problem.fingerprint}" for problem in self.heldout)
        return hashlib.sha256("\n".join(rows).encode()).hexdigest()


def leave_out_near_duplicates(loaded: LoadedProblems, evaluation: Sequence[Problem]) -> None:
    """Leave out the problems of both splits that are near-duplicates of one of these evaluation problems."""
    source_of = {problem.id: problem.source for problem in evaluation}
    close = {pair.moved: pair for pair in pairs(loaded.every, evaluation, STRICT)}
    for problem in loaded.every:
        if problem.id in close:
            reason = f"is a near-duplicate of a problem of {source_of[close[problem.id].like]}"
            loaded.left_out.append(LeftOut(problem.id, reason, problem.source))
    loaded.train = [problem for problem in loaded.train if problem.id not in close]
    loaded.heldout = [problem for problem in loaded.heldout if problem.id not in close]


def by_reason(left_out: Iterable[LeftOut], most: int = 3) -> list[LeftOut]:
    """One entry for each source and reason. If it is about several problems, its id is their number and at most so
    many ids."""
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for entry in left_out:
        groups[entry.source, entry.reason].append(entry.id)
    entries = []
    for (source, reason), ids in groups.items():
        shown = ids[:most]
        if len(ids) > most:
            shown.append("...")
        some = ", ".join(shown)
        name = ids[0] if len(ids) == 1 else f"{len(ids):,} of {source} ({some})"
        entries.append(LeftOut(name, reason, source))
    return entries
