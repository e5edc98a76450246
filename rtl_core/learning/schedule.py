"""What moves over the steps of a run: the learning rate, and λ, the weight of the reverse KL to the teacher, which may also be held to a
target KL.

A schedule over N steps goes from a at the first to b at the last, with x = step / (N − 1), where N is the run's steps or the first
share of them; after it the value stays at b. The teacher early and the verdicts late is a schedule to 0 over a part of the run:

    linear   a + (b − a) x
    cosine   b + (a − b) (1 + cos πx) / 2

The controller multiplies λ after each step by `1 + gain · e`, where e = (KL − target) / target, cut to ±0.2: above the target the
teacher's word counts more. Source: Ziegler et al. 2019 (arXiv:1909.08593), section 2.2, equation 3, there with a gain of 0.1.
Its whole state is the λ of the step before and the KL that was measured in it.
"""

from __future__ import annotations

import math
from typing import Literal

KlSchedule = Literal["constant", "linear", "cosine", "target"]

ERROR_LIMIT = 0.2
"""The controller's relative error is cut to plus or minus this."""


def scheduled(step: int, steps: int, first: float, last: float, schedule: KlSchedule, part: float = 1.0) -> float:
    """The value at step `step` (from 0) of a run of `steps`.

    Args:
        first, last: the value at the schedule's first and last step; beyond the last it stays there.
        part: the share of the run's steps that the schedule takes, in (0, 1], rounded to whole steps and at least one.

    Raises:
        ValueError: the schedule is `target`, which no step tells.
    """
    if schedule == "target":
        raise ValueError("a weight that is held to a target follows from what was measured, not from the step alone")
    if schedule == "constant":
        return first
    own = max(1, round(part * steps))
    if step >= own:
        return last
    share = max(step, 0) / (own - 1) if own > 1 else 0.0
    if schedule == "linear":
        return first + (last - first) * share
    return last + (first - last) * (1 + math.cos(math.pi * share)) / 2


def controlled_weight(weight: float, kl: float, target: float, *, gain: float, lowest: float, highest: float) -> float:
    """λ of the next step, from the one of this step and the KL per token (nats) measured in it, within its bounds.

    Raises:
        ValueError: `target` is not positive.
    """
    if target <= 0:
        raise ValueError(f"the target KL must be positive, not {target}")
    error = min(max((kl - target) / target, -ERROR_LIMIT), ERROR_LIMIT)
    return min(max(weight * (1 + gain * error), lowest), highest)
