"""Safe ranges of a run's metrics, and a check of the sampler's log-probabilities.

A metric has left its range when it was outside in each of the last `patience` steps. NaN is outside. A step
without the metric interrupts the sequence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rtl_core.learning.kl import FloatArray

METRICS = {
    "optim/kl_sample_train_v1": "mean of the sampler's minus the trainer's log-probability of the same tokens, nats",
    "optim/kl_sample_train_v2": "half the mean of that difference's square, nats",
    "optim/entropy": "mean negative log-probability of the sampled tokens, nats",
    "teacher_kl": "reverse KL to the teacher per token, nats",
    "groups/mixed": "share of groups in which some answers passed and some did not",
    "groups/all_good": "share of groups in which every answer passed",
    "groups/all_bad": "share of groups in which none passed",
    "env/all/truncated": "share of answers truncated at the token limit",
    "env/all/duplicates": "share of answers equal to an earlier one of their group",
    "env/all/format_valid": "share of answers from which files could be read",
    "env/all/tests_passed": "share of answers that passed",
    "passes/doubtful": "share of the audited passes that are doubtful",
    "env/all/reward/total": "mean reward",
    "env/all/ac_tokens_per_turn": "mean tokens of an answer",
}
"""Step metrics that may have a safe range, and their meaning. They are recorded under these names."""


ROUNDING_NATS = 0.02
"""Mean difference that equal weights may have in two programs because of number formats and kernels."""
UNCERTAIN_NATS, MOST_ZEROS = -0.1, 0.02
"""No sampler is certain (log-probability 0) of a token to which the trainer gives less than e^−0.1, but for
a share of rare exceptions."""


def disagreement(sampler_T: FloatArray, trainer_T: FloatArray, share: float) -> str | None:
    """Return how the sampler's log-probabilities of T sampled tokens differ from those of equal weights in
    the trainer; None if they do not.

    The KL estimate does not show this, because errors of both signs cancel. `share`: the largest mean
    absolute difference, beyond rounding, as a share of the trainer's mean.
    """
    zero_T = sampler_T[trainer_T < UNCERTAIN_NATS] == 0
    if zero_T.sum() > 1 + MOST_ZEROS * len(zero_T):
        return (
            f"zeros (the sampler's log-probability is exactly 0 for {zero_T.mean():.0%} of the "
            "tokens that the trainer finds uncertain)"
        )
    difference = np.abs(sampler_T - trainer_T).mean()
    limit = ROUNDING_NATS - share * trainer_T.mean()
    if difference <= limit:
        return None
    return f"{difference:.3f} nats per token in either direction (limit {limit:.3f})"


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
        steps = f" in {len(self.values)} consecutive steps" if len(self.values) > 1 else ""
        values = ", ".join(f"{value:.4g}" for value in self.values)
        meaning = METRICS[self.metric]
        safe = f"its safe range is {lowest} to {highest}"
        return f"{self.metric} ({meaning}) was {values}{steps}; {safe}"


def breaches(
    steps: Sequence[Mapping[str, float]],
    ranges: Mapping[str, tuple[float | None, float | None]],
    patience: int,
) -> list[Breach]:
    """Return the metrics that left their range.

    Args:
        steps: metrics of the latest steps, oldest first; only the last `patience` count.
        ranges: metric -> (lowest, highest); None means no bound.
        patience: how many consecutive steps must be outside.
    """
    outside = []
    for metric, (lowest, highest) in ranges.items():
        values = tuple(step[metric] for step in steps[-patience:] if metric in step)
        low = -math.inf if lowest is None else lowest
        high = math.inf if highest is None else highest
        safe = any(low <= value <= high for value in values)  # NaN is not within bounds
        if len(values) == patience and not safe:
            outside.append(Breach(metric, lowest, highest, values))
    return outside
