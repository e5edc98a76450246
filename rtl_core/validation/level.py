"""How thoroughly problems are validated, and the key under which the history keeps what was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

from rtl_core.grading.cache import GRADER_VERSION, sha256_of
from rtl_core.types.problem import Problem
from rtl_core.validation.stubs import STUBS, Stub

VALIDATOR_VERSION = 4
"""Raised whenever validation may come to another result than before."""

LevelName = Literal["quick", "full"]


@dataclass(frozen=True)
class Level:
    """What is checked of each problem."""

    name: LevelName
    mutants: int
    """Mutants of the golden answer that are judged; mutants that behave like it are replaced by others."""
    seeds: tuple[int, ...]
    """Seeds under which the golden answer must get the same verdict. One seed twice is a repetition."""
    stubs: tuple[Stub, ...] = STUBS
    generated_stubs: tuple[Stub, ...] = STUBS
    """Stubs for generated problems, such as those of the starter set."""

    def stubs_for(self, problem: Problem) -> tuple[Stub, ...]:
        return self.generated_stubs if problem.generated else self.stubs


def quick_level(mutants: int, seed: int) -> Level:
    """Before a training run: two seeds, the mutants of the configuration, and two stubs where the problem is not generated."""
    return Level("quick", mutants, (seed, seed + 1), stubs=("zeros", "unknown"), generated_stubs=())


def full_level(mutants: int = 20, seeds: int = 3) -> Level:
    """For `rtl-distill validate`: every stub, many mutants, several seeds and one of them twice.

    With generated problems, outputs that are all 1 or copies of inputs are left to the mutants, which say more there, and a pulse
    of 1 ns to the stub of all zeros: it is over when a starter bench looks for the first time.
    """
    generated = tuple(stub for stub in STUBS if stub not in ("ones", "inputs", "blip"))
    return Level("full", mutants, (*range(1, seeds + 1), 1), generated_stubs=generated)


def tools_key(executor: str, tools: Mapping[str, str], level: Level) -> str:
    """SHA-256 (hex) over all but the problem that a validation depends on: tools, level, and versions of our own code."""
    parts = {
        "validator": VALIDATOR_VERSION,
        "grader": GRADER_VERSION,
        "executor": executor,
        "tools": dict(tools),
        "level": asdict(level),
    }
    return sha256_of(parts)


def golden_digest(problem: Problem) -> str | None:
    """SHA-256 (hex) of the golden answer, which is no part of a problem's fingerprint; None without one."""
    return None if problem.golden is None else sha256_of(problem.golden)
