"""The curves that every view of a run shows in brief: reward, pass rate and KL by step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rtl_core.history.store import History

_VIEWS = (
    ("reward", "reward_by_step", "reward"),
    ("pass rate", "pass_by_step", "pass_rate"),
    ("teacher KL", "teacher_kl_by_step", "k1"),
)


@dataclass(frozen=True)
class Curve:
    """One quantity by trained step, in order; never empty."""

    label: str
    values: list[float]

    @property
    def ends(self) -> tuple[float, float]:
        """Means of the first and of the last tenth."""
        few = max(1, len(self.values) // 10)
        return float(np.mean(self.values[:few])), float(np.mean(self.values[-few:]))


def curves_of(history: History, run: str) -> Iterator[Curve]:
    """The curves of which a run has recorded anything."""
    for label, view, column in _VIEWS:
        rows = history.query(f"SELECT {column} AS value FROM {view} WHERE run = $run ORDER BY step", {"run": run})
        if values := rows.column("value").to_pylist():
            yield Curve(label, values)
