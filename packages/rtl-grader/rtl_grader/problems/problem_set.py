"""Results of reading problems: problems, broken lines, and problems left out."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Literal

from rtl_grader.problems.design import Design
from rtl_grader.problems.near_duplicates import NearDuplicate
from rtl_grader.types.problem import Problem

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

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}"
        return f"{place}: {self.id or 'no id'}: {self.field}: {self.reason}"


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
    def every(self) -> list[Problem]:
        """The problems of both splits."""
        return [*self.train, *self.heldout]

    @property
    def fingerprint(self) -> str:
        """SHA-256 (hex) over the fingerprints of both splits, in any order."""
        rows = sorted(f"train {problem.fingerprint}" for problem in self.train)
        rows += sorted(f"heldout {problem.fingerprint}" for problem in self.heldout)
        return hashlib.sha256("\n".join(rows).encode()).hexdigest()
