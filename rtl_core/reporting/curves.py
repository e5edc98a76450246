"""The main curves of a run: reward and pass rate, raw and at equal difficulty, and KL by step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rtl_core.history.store import History
from rtl_core.learning.equal_difficulty import SUFFIX
from rtl_core.reporting.blocks import Source

METRICS = {
    "reward": "env/all/reward/total",
    "pass rate": "env/all/tests_passed",
    "teacher KL": "teacher_kl",
}
"""Quantity -> the metric that each trained step recorded."""


@dataclass(frozen=True)
class Curve:
    """A quantity by trained step, in order; never empty."""

    quantity: str
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
    points = Source(history, run).recorded(1, *names)
    for quantity, metric in METRICS.items():
        _, equal = points.get(metric + SUFFIX, ([], []))
        _, raw = points.get(metric, ([], []))
        if equal:
            yield Curve(quantity, equal, "at equal difficulty")
        if raw:
            yield Curve(quantity, raw, "raw" if equal else "")
