"""Safe ranges of a run's metrics, and a check of the sampler's log-probabilities.

A metric has left its range when it was outside in each of the last `patience` steps. NaN is outside. A step
without the metric interrupts the sequence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from rtl_core.learning.kl import FloatArray
from rtl_grader.types.section import Section

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


class SafeRange(Section):
    """Bounds of a metric, in the configuration section `[health]`."""

    min: float | None = None
    """Minimum safe value. Default: none."""
    max: float | None = None
    """Maximum safe value. Default: none."""

    def holds(self, value: float) -> bool:
        """Whether a value is safe. NaN is not."""
        low = -math.inf if self.min is None else self.min
        high = math.inf if self.max is None else self.max
        return low <= value <= high

    def __str__(self) -> str:
        lowest = "-∞" if self.min is None else f"{self.min:g}"
        highest = "∞" if self.max is None else f"{self.max:g}"
        return f"{lowest} to {highest}"


def breaches(
    steps: Sequence[Mapping[str, float]], ranges: Mapping[str, SafeRange], patience: int
) -> list[str]:
    """Say for each metric that left its range what its values were.

    Args:
        steps: metrics of the latest steps, oldest first; only the last `patience` count.
        patience: how many consecutive steps must be outside.
    """
    outside = []
    for metric, bounds in ranges.items():
        values = [step[metric] for step in steps[-patience:] if metric in step]
        if len(values) == patience and not any(map(bounds.holds, values)):
            words = ", ".join(f"{value:.4g}" for value in values)
            of_steps = f" in {patience} consecutive steps" if patience > 1 else ""
            safe = f"its safe range is {bounds}"
            outside.append(f"{metric} ({METRICS[metric]}) was {words}{of_steps}; {safe}")
    return outside
