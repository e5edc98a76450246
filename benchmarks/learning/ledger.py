"""The ledger: a tracked file with one line for each cell that ran, on what machine, from which commit, with its figures.

Two kinds of lines. A tier's line (`TierLine`) names its test problems and what teacher and untrained student do on them; a cell's
(`Cell`) has the counts of one run in the same order of problems. A cell whose settings, size and models are still those of its line
is not run again.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import TypeAdapter

from benchmarks.learning.tiers import TierName

LEDGER = Path(__file__).with_name("ledger.jsonl")


@dataclass(frozen=True)
class Ran:
    """Where and from what something was measured."""

    commit: str
    machine: str
    day: str
    minutes: float
    memory_gb: float | None = None
    """Largest resident memory of one of the run's processes; None: not measured."""


@dataclass(frozen=True)
class Counts:
    """Of each test problem, in the order of its tier: how many of its answers passed, and how many had the interface right."""

    passed_P: list[int]
    interface_P: list[int]


@dataclass(frozen=True)
class TierLine:
    """What all cells of a tier share."""

    tier: TierName
    recipe: str
    problems_P: list[str]
    samples: int
    """Answers to each test problem."""
    untrained: Counts
    teacher: Counts | None
    """None: the tier has no teacher but the student itself."""
    ran: Ran


class Step(NamedTuple):
    """One train step: the student's answers, how many passed, and what the step's tokens would cost in dollars at the price list's
    prices for the models of the shipped configuration `cvdp`. A supervised step has no answers of the student."""

    answers: int
    passed: int
    usd: float


@dataclass(frozen=True)
class Cell:
    """One run of one setting with one seed."""

    setting: str
    tier: TierName
    seed: int
    recipe: str
    """Hash of the settings and models: a line of another recipe is no result of this one."""
    after: Counts
    steps: list[Step]
    evaluations: list[tuple[int, int]]
    """(train steps, passed answers of the test problems) of each evaluation during the run, the first and the last apart."""
    answers: int
    """All answers that were sampled outside evaluations, the teacher's and those of groups that gave their place away included."""
    train_tokens: int
    ran: Ran

    def figure_P(self, name: str, samples: int) -> np.ndarray:
        """`pass@1` or `interface` of each problem after training. ValueError for another name."""
        if name == "pass@1":
            return np.array(self.after.passed_P) / samples
        if name == "interface":
            return np.array(self.after.interface_P) / samples
        raise ValueError(f"no figure is called {name!r}")


_LINES: dict[str, TypeAdapter[Any]] = {"tier": TypeAdapter(TierLine), "cell": TypeAdapter(Cell)}


class Ledger:
    """The lines of a file. Later lines replace earlier ones of the same tier, or of the same setting and seed."""

    def __init__(self, path: Path = LEDGER) -> None:
        self.path = path
        self.tiers: dict[TierName, TierLine] = {}
        self.cells: dict[tuple[str, int], Cell] = {}
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        for number, line in enumerate(text.splitlines(), 1):
            try:
                self._take(_parsed(json.loads(line)))
            except (ValueError, TypeError, KeyError) as error:
                raise ValueError(f"{path}, line {number}: not a line of the ledger: {error!r}") from error

    def add(self, line: TierLine | Cell) -> None:
        """Append a line and write it through to the disk."""
        kind = "tier" if isinstance(line, TierLine) else "cell"
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, **asdict(line)}, separators=(",", ":")) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self._take(line)

    def _take(self, line: TierLine | Cell) -> None:
        if isinstance(line, TierLine):
            self.tiers[line.tier] = line
        else:
            self.cells[line.setting, line.seed] = line


def _parsed(data: dict[str, Any]) -> TierLine | Cell:
    line: TierLine | Cell = _LINES[data.pop("kind")].validate_python(data)
    return line
