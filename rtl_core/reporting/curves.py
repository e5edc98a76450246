"""The main curves of a run: reward and pass rate, raw and at equal difficulty, and KL by step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rtl_core.history.store import History
from rtl_core.learning.equal_difficulty import SUFFIX

_VIEWS = (
    ("reward", "reward_by_step", "reward", "env/all/reward/total"),
    ("pass rate", "pass_by_step", "pass_rate", "env/all/tests_passed"),
    ("teacher KL", "teacher_kl_by_step", "k1", "teacher_kl"),
)


@dataclass(frozen=True)
class Curve:
    """A quantity by trained step, in order; never empty."""

    quantity: str
    steps: list[int]
    values: list[float]
    kind: Literal["", "at equal difficulty", "raw"] = ""
    """`raw` if there is also a curve at equal difficulty."""

    @property
    def label(self) -> str:
        return f"{self.quantity}, {self.kind}" if self.kind else self.quantity

    @property
    def ends(self) -> tuple[float, float]:
        """Means of the first and the last tenth."""
        few = max(1, len(self.values) // 10)
        return float(np.mean(self.values[:few])), float(np.mean(self.values[-few:]))


def curves_of(history: History, run: str) -> Iterator[Curve]:
    """The curves for which a run has data."""
    for quantity, view, column, metric in _VIEWS:
        asked = "SELECT step, value FROM step_metrics WHERE run = ? AND name = ? ORDER BY step"
        equal = history.query(asked, [run, metric + SUFFIX]).to_pydict()
        if equal["step"]:
            yield Curve(quantity, equal["step"], equal["value"], "at equal difficulty")
        asked = f"SELECT step, {column} AS value FROM {view} WHERE run = ? ORDER BY step"
        raw = history.query(asked, [run]).to_pydict()
        if raw["step"]:
            yield Curve(quantity, raw["step"], raw["value"], "raw" if equal["step"] else "")
