"""Safe ranges of what a run measures of itself, and when it has left one.

A metric has left its range when it was outside in each of the last `patience` steps; a number that is none (NaN) is outside. A step
that did not measure it interrupts the row: nothing is known of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

METRICS = {
    "optim/kl_sample_train_v1": "mean of the sampler's minus the trainer's log-probability of the same tokens, nats",
    "optim/kl_sample_train_v2": "half the mean of that difference's square, nats",
    "optim/entropy": "mean negative log-probability of the sampled tokens, nats",
    "teacher_kl": "reverse KL to the teacher per token, nats",
    "groups/mixed": "share of groups in which some answers passed and some did not",
    "groups/all_good": "share of groups in which every answer passed",
    "groups/all_bad": "share of groups in which none passed",
    "env/all/truncated": "share of answers cut at the token limit",
    "env/all/duplicates": "share of answers equal to an earlier one of their group",
    "env/all/format_valid": "share of answers from which files could be read",
    "env/all/tests_passed": "share of answers that passed",
    "passes/doubtful": "share of the passes looked at that are doubtful",
    "env/all/reward/total": "mean reward",
    "env/all/ac_tokens_per_turn": "mean tokens of an answer",
}
"""Metrics of a step that a range may be set for, and what each is. All are recorded under these names."""


@dataclass(frozen=True, slots=True)
class Breach:
    """A metric outside its range: `values` are those of the last steps, oldest first."""

    metric: str
    lowest: float | None
    highest: float | None
    values: tuple[float, ...]

    def __str__(self) -> str:
        lowest = "-∞" if self.lowest is None else f"{self.lowest:g}"
        highest = "∞" if self.highest is None else f"{self.highest:g}"
        steps = f" in {len(self.values)} steps running" if len(self.values) > 1 else ""
        values = ", ".join(f"{value:.4g}" for value in self.values)
        return f"{self.metric} ({METRICS[self.metric]}) was {values}{steps}; its safe range is {lowest} to {highest}"


def breaches(
    steps: Sequence[Mapping[str, float]],
    ranges: Mapping[str, tuple[float | None, float | None]],
    patience: int,
) -> list[Breach]:
    """The metrics that left their range.

    Args:
        steps: metrics of the latest steps, oldest first; those before the last `patience` do not count.
        ranges: metric -> (lowest, highest), None where there is no bound.
        patience: how many steps in a row must be outside.
    """
    last = steps[-patience:]
    if len(last) < patience:
        return []
    found = []
    for metric, (lowest, highest) in ranges.items():
        values = [step[metric] for step in last if metric in step]
        if len(values) == patience and all(_outside(value, lowest, highest) for value in values):
            found.append(Breach(metric, lowest, highest, tuple(values)))
    return found


def _outside(value: float, lowest: float | None, highest: float | None) -> bool:
    return math.isnan(value) or (lowest is not None and value < lowest) or (highest is not None and value > highest)
