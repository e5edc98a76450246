"""Levels of validation, and the key of stored validation results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

from rtl_grader.digest import sha256_of
from rtl_grader.grading.cache import GRADER_VERSION
from rtl_grader.types.problem import Problem
from rtl_grader.validation.stubs import STUBS, Stub

VALIDATOR_VERSION = 7
"""Increase it whenever validation may reach another result than before."""

LevelName = Literal["quick", "full"]


@dataclass(frozen=True)
class Level:
    """The checks of each problem."""

    name: LevelName
    mutants: int
    """Number of mutants to judge; mutants that behave like the golden answer are replaced by others."""
    seeds: tuple[int, ...]
    """Seeds under which the golden answer must get the same verdict; a seed may occur twice to repeat it."""
    stubs: tuple[Stub, ...] = STUBS
    generated_stubs: tuple[Stub, ...] = STUBS
    """Stubs for generated problems, such as those of the starter set."""

    def stubs_for(self, problem: Problem) -> tuple[Stub, ...]:
        return self.generated_stubs if problem.generated else self.stubs


def quick_level(mutants: int, seed: int) -> Level:
    """Level of a training run: two seeds, the configured number of mutants, and two stubs unless the
    problem is generated."""
    return Level(
        "quick", mutants, (seed, seed + 1), stubs=("zeros", "unknown"), generated_stubs=()
    )


def full_level(mutants: int = 20, seeds: int = 3) -> Level:
    """Level of `rtl-grader validate`: every stub, many mutants, several seeds, and one of them twice.

    Generated problems omit four stubs: mutants say more than outputs that are all 1, copies of inputs or
    counters, and a pulse of 1 ns is over before a starter bench first checks an output, so `zeros` covers
    it.
    """
    generated = tuple(
        stub for stub in STUBS if stub not in ("ones", "inputs", "counter", "blip")
    )
    return Level("full", mutants, (*range(1, seeds + 1), 1), generated_stubs=generated)


def tools_key(executor: str, tools: Mapping[str, str], level: Level) -> str:
    """SHA-256 (hex) of everything a validation depends on besides the problem: tools, level, and versions
    of our own code."""
    versions = {"validator": VALIDATOR_VERSION, "grader": GRADER_VERSION}
    return sha256_of(
        {**versions, "executor": executor, "tools": dict(tools), "level": asdict(level)}
    )


def golden_digest(problem: Problem) -> str | None:
    """SHA-256 (hex) of the golden answer, which a problem's fingerprint does not cover; None without one."""
    return None if problem.golden is None else sha256_of(problem.golden)
