"""The problem sets of a configuration, read and split: the one line per source is here."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rtl_core.config.models import CvdpSource, ProblemsSection, RtllmSource, StarterSource, VerilogEvalSource
from rtl_core.errors import ProblemError
from rtl_core.problems.cvdp import BrokenLine, LeftOut, ProblemSet
from rtl_core.problems.folder import read_cvdp_path
from rtl_core.problems.near_duplicates import NearDuplicate, separate
from rtl_core.problems.rtllm import read_rtllm
from rtl_core.problems.starter import starter_problems
from rtl_core.problems.verilog_eval import read_verilog_eval
from rtl_core.types.problem import Problem


@dataclass
class LoadedProblems:
    """All problems of a run by split, and what could not be used, with the reason."""

    train: list[Problem] = field(default_factory=list)
    heldout: list[Problem] = field(default_factory=list)
    broken: list[BrokenLine] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    moved: list[NearDuplicate] = field(default_factory=list)
    """Training problems that are held out because a held-out one asks for nearly the same."""
    heldout_split: str = "heldout"
    """Which held-out specifications were loaded: `heldout`, or `test`, the one kept apart while tuning."""

    @property
    def fingerprint(self) -> str:
        """SHA-256 (hex) over the fingerprints of both splits, whatever their order."""
        rows = sorted(f"train {p.fingerprint}" for p in self.train) + sorted(
            f"heldout {p.fingerprint}" for p in self.heldout
        )
        return hashlib.sha256("\n".join(rows).encode()).hexdigest()


def heldout_by_hash(problem: Problem, fraction: float) -> bool:
    """Whether a problem is held out: decided by its fingerprint alone, so that it never changes sides."""
    return int(problem.fingerprint[:8], 16) / 2**32 < fraction


def _load_starter(source: StarterSource, seed: int, into: LoadedProblems) -> None:
    into.train += starter_problems("train", source.train, seed, tier=source.tier)
    # The held-out problems are the same for every seed of a run, so that runs can be compared.
    into.heldout_split = source.heldout_split
    into.heldout += starter_problems(source.heldout_split, source.heldout, 0, tier=source.tier)


def _load_files(
    read: Callable[[Path], ProblemSet],
) -> Callable[[CvdpSource | VerilogEvalSource | RtllmSource, int, LoadedProblems], None]:
    def load(source: CvdpSource | VerilogEvalSource | RtllmSource, seed: int, into: LoadedProblems) -> None:
        found = read(source.path)
        into.broken += found.broken
        into.left_out += found.left_out
        for problem in found.problems:
            (into.heldout if heldout_by_hash(problem, source.heldout_fraction) else into.train).append(problem)

    return load


LOADERS: dict[type, Callable[[Any, int, LoadedProblems], None]] = {
    StarterSource: _load_starter,
    CvdpSource: _load_files(read_cvdp_path),
    VerilogEvalSource: _load_files(read_verilog_eval),
    RtllmSource: _load_files(read_rtllm),
}


def load_problems(section: ProblemsSection, seed: int) -> LoadedProblems:
    """Read every source of a configuration.

    Raises:
        ProblemError: two problems share an id, or no training problem is left.
    """
    loaded = LoadedProblems()
    for source in section.sources:
        LOADERS[type(source)](source, seed, loaded)
    _check_unique([*loaded.train, *loaded.heldout])
    loaded.train, loaded.heldout, loaded.moved = separate(loaded.train, loaded.heldout)
    if not loaded.train:
        reasons = [f"{b.file}:{b.line}: {b.reason}" for b in loaded.broken] + [
            f"{o.id}: {o.reason}" for o in loaded.left_out
        ]
        raise ProblemError(
            "no training problem is left\n" + "\n".join(f"  {r}" for r in reasons[:10]), "check problems.sources"
        )
    return loaded


def _check_unique(problems: Sequence[Problem]) -> None:
    seen: dict[str, Problem] = {}
    for problem in problems:
        if problem.id in seen:
            raise ProblemError(
                f"two problems have the id {problem.id!r} (sources {seen[problem.id].source}, {problem.source})",
                "ids must be unique within a run; rename one",
            )
        seen[problem.id] = problem
