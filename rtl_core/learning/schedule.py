"""Schedules of the learning rate and of λ, the weight of the reverse KL to the teacher; a controller that
holds λ to a target KL.

A schedule over N steps goes from a at the first step to b at the last, with x = step / (N − 1). N is the
run's steps or the first part of them; afterwards the value stays at b:

    linear   a + (b − a) x
    cosine   b + (a − b) (1 + cos πx) / 2

The controller multiplies λ after each step by `1 + gain · e`, where e = (KL − target) / target, clamped to
±0.2, so that λ grows above the target. Source: Ziegler et al. 2019 (arXiv:1909.08593), section 2.2,
equation 3, there with a gain of 0.1. Its only state is λ and the KL of the previous step.
"""

from __future__ import annotations

import math
from typing import Literal

KlSchedule = Literal["constant", "linear", "cosine", "target"]

ERROR_LIMIT = 0.2
"""Bound of the controller's relative error."""


def scheduled(
    step: int, steps: int, first: float, last: float, schedule: KlSchedule, part: float = 1.0
) -> float:
    """Value at step `step` (from 0) of a run of `steps`.

    Args:
        first, last: values at the schedule's first and last step; later steps keep `last`.
        part: share of the run's steps that the schedule covers, in (0, 1], rounded to at least one whole step.

    Raises:
        ValueError: the schedule is `target`, whose values depend on measurements.
    """
    if schedule == "target":
        raise ValueError(
            "a weight that is held to a target follows from what was measured, not from the step alone"
        )
    if schedule == "constant":
        return first
    length = max(1, round(part * steps))
    if step >= length:
        return last
    share = max(step, 0) / (length - 1) if length > 1 else 0.0
    if schedule == "linear":
        return first + (last - first) * share
    return last + (first - last) * (1 + math.cos(math.pi * share)) / 2


def controlled_weight(
    weight: float, kl: float, target: float, *, gain: float, lowest: float, highest: float
) -> float:
    """λ of the next step, from this step's λ and measured KL per token (nats), within the bounds."""
    error = min(max((kl - target) / target, -ERROR_LIMIT), ERROR_LIMIT)
    return min(max(weight * (1 + gain * error), lowest), highest)
