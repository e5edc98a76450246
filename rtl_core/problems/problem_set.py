"""What reading problems gives: problems, lines that are broken, problems that are left out."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Literal

from rtl_core.problems.design import Design
from rtl_core.problems.near_duplicates import NearDuplicate
from rtl_core.types.problem import Problem

SplitBy = Literal["design", "id"]
"""What stands on one side of the split as a whole: `problems.split` of a configuration."""


@dataclass(frozen=True)
class BrokenLine:
    """One line that is no usable problem."""

    file: str
    line: int
    """Counted from 1."""
    id: str | None
    field: str
    """The field at fault in dots (`input.prompt`), or `line` when the line is no JSON object."""
    reason: str
    source: str
    """Short name of the set, as in `Problem.source`."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.id or 'no id'}: {self.field}: {self.reason}"


@dataclass(frozen=True)
class LeftOut:
    """One sound problem that cannot be graded here, and why."""

    id: str
    reason: str
    source: str
    """Short name of the set, as in `Problem.source`."""


@dataclass(frozen=True)
class ProblemSet:
    """What a file held: the problems in its order, the broken lines, the problems left out."""

    problems: list[Problem] = field(default_factory=list)
    broken: list[BrokenLine] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)


@dataclass
class LoadedProblems:
    """All problems of a run by split, and what could not be used, with the reason."""

    train: list[Problem] = field(default_factory=list)
    heldout: list[Problem] = field(default_factory=list)
    broken: list[BrokenLine] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    moved: list[NearDuplicate] = field(default_factory=list)
    """Training problems that are held out because a held-out one asks for nearly the same."""
    split: SplitBy = "design"
    """How sources with files are split; given before they are read."""
    designs: dict[str, Design] = field(default_factory=dict)
    """Problem id -> its design; only with `split` "design", and not of generated problems."""
    heldout_split: str = "heldout"
    """Which held-out specifications were loaded: `heldout`, or `test`, the one kept apart while tuning."""

    @property
    def every(self) -> list[Problem]:
        """The problems of both splits."""
        return [*self.train, *self.heldout]

    @property
    def fingerprint(self) -> str:
        """SHA-256 (hex) over the fingerprints of both splits, whatever their order."""
        rows = sorted(f"train {p.fingerprint}" for p in self.train) + sorted(
            f"heldout {p.fingerprint}" for p in self.heldout
        )
        return hashlib.sha256("\n".join(rows).encode()).hexdigest()
