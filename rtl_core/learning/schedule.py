"""Schedules over the steps of a run."""

from __future__ import annotations


def linear_decay(step: int, steps: int, final_share: float) -> float:
    """Factor of step `step` (from 0) of `steps`: 1 at the first, `final_share` at the last, a straight line between."""
    if steps < 2:
        return 1.0
    return 1.0 - (1.0 - final_share) * min(step, steps - 1) / (steps - 1)
