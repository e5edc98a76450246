"""The ledger: a tracked file with one line for each cell that ran, with its machine, commit and figures.

A tier's line (`TierLine`) has its test problems and the results of teacher and untrained student; a cell's
(`Cell`) has the results of one run, in the same order of problems. A cell is not run again while its
settings, sizes and models are those of its line.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import TypeAdapter

from benchmarks.learning.settings import TierName

LEDGER = Path(__file__).with_name("ledger.jsonl")


@dataclass(frozen=True)
class Ran:
    """Where, when and from which commit something was measured."""

    commit: str
    machine: str
    day: str
    minutes: float
    memory_gb: float | None = None
    """Peak resident memory of the run's largest process; None if it was not measured."""


@dataclass(frozen=True)
class Counts:
    """For each test problem of the tier: how many of its answers passed, and how many had the right interface."""

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
    """None: there is none, or the student is its own."""
    ran: Ran
    masks_P: list[int] | None = None
    """Tokens of each problem's masked part, where all have one."""


class Step(NamedTuple):
    """A train step: the student's answers, how many passed, and the price of the step's tokens in dollars,
    at the prices of the models in the shipped configuration `cvdp`. A supervised step has no answers of the
    student."""

    answers: int
    passed: int
    usd: float


@dataclass(frozen=True)
class Cell:
    """A run of a setting with a seed."""

    setting: str
    tier: TierName
    seed: int
    recipe: str
    """Hash of the settings and models; a line with another recipe is not a result of this cell."""
    after: Counts
    steps: list[Step]
    evaluations: list[tuple[int, int]]
    """(train steps, passed answers of the test problems) of each evaluation during the run, except the
    first and the last."""
    answers: int
    """All answers that were sampled outside evaluations, including the teacher's and those of groups that
    were replaced."""
    train_tokens: int
    ran: Ran
    gain: dict[str, float] | None = None
    """Parts of the gain in pass@1, in points, by the query `what-rl-taught`; empty without RL steps, None in lines
    that are older."""
    after_warm_start: Counts | None = None
    """The results between the supervised steps and the others, if the run was evaluated there."""

    def figure_P(self, name: str, samples: int) -> np.ndarray:
        """`pass@1` or `interface` of each problem after training."""
        counts = {"pass@1": self.after.passed_P, "interface": self.after.interface_P}
        return np.array(counts[name]) / samples


_LINES: dict[str, TypeAdapter[Any]] = {"tier": TypeAdapter(TierLine), "cell": TypeAdapter(Cell)}


class Ledger:
    """The lines of a file. A later line replaces an earlier one of the same tier, or of the same setting and seed."""

    def __init__(self, path: Path = LEDGER) -> None:
        self.path = path
        self.tiers: dict[TierName, TierLine] = {}
        self.cells: dict[tuple[str, int], Cell] = {}
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        for number, line in enumerate(text.splitlines(), 1):
            try:
                data = json.loads(line)
                self._take(_LINES[data.pop("kind")].validate_python(data))
            except (ValueError, TypeError, KeyError) as error:
                raise ValueError(
                    f"{path}, line {number}: not a line of the ledger: {error!r}"
                ) from error

    def add(self, line: TierLine | Cell) -> None:
        """Append a line and sync it to the disk."""
        kind = "tier" if isinstance(line, TierLine) else "cell"
        self.path.parent.mkdir(parents=True, exist_ok=True)
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
