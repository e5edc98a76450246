"""The main curves of a run: reward and pass rate, raw and at equal difficulty, and KL by step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rtl_core.history.store import History
from rtl_core.learning.equal_difficulty import SUFFIX

METRICS = {
    "reward": "env/all/reward/total",
    "pass rate": "env/all/tests_passed",
    "teacher KL": "teacher_kl",
}
"""Quantity -> the metric that each trained step recorded."""
_POINTS = """
SELECT name, list(step ORDER BY step) AS steps, list(value ORDER BY step) AS y FROM step_metrics
WHERE run = $run AND list_contains($names, name) GROUP BY name
"""


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
        first, last = self.values[:few], self.values[-few:]
        return float(np.mean(first)), float(np.mean(last))


def curves_of(history: History, run: str) -> Iterator[Curve]:
    """The curves for which a run has data."""
    names = [metric + suffix for metric in METRICS.values() for suffix in ("", SUFFIX)]
    rows = history.rows(_POINTS, run=run, names=names)
    points = {row["name"]: (row["steps"], row["y"]) for row in rows}
    for quantity, metric in METRICS.items():
        equal = points.get(metric + SUFFIX)
        if equal:
            yield Curve(quantity, *equal, "at equal difficulty")
        if metric in points:
            yield Curve(quantity, *points[metric], "raw" if equal else "")
