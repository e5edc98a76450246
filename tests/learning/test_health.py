"""Metrics that leave their safe range."""

import math

import pytest

from rtl_core.learning.health import METRICS, breaches


@pytest.mark.parametrize(
    ("values", "patience", "bounds", "outside"),
    [
        ([0.5, 0.05], 1, (0.1, None), [0.05]),
        ([0.9], 1, (0.2, 0.9), None),
        ([0.91], 1, (0.2, 0.9), [0.91]),
        ([0.05, 0.05], 3, (0.1, None), None),
        ([0.05, 0.2, 0.05], 3, (0.1, None), None),
        ([0.9, 0.05, 0.04, 0.03], 3, (0.1, None), [0.05, 0.04, 0.03]),
        ([0.05, None, 0.05], 3, (0.1, None), None),
        ([math.nan], 1, (0.1, None), [math.nan]),
    ],
)
def test_a_breach_needs_each_of_the_last_steps_outside_the_bounds(values, patience, bounds, outside):
    steps = [{} if value is None else {"optim/entropy": value} for value in values]
    found = [list(breach.values) for breach in breaches(steps, {"optim/entropy": bounds}, patience)]
    assert found == ([pytest.approx(outside, nan_ok=True)] if outside else [])


def test_a_breach_names_metric_values_and_range():
    (breach,) = breaches([{"optim/entropy": 0.05}] * 3, {"optim/entropy": (0.1, None)}, patience=3)
    for part in ("optim/entropy", METRICS["optim/entropy"], "0.05, 0.05, 0.05 in 3 consecutive steps", "0.1 to ∞"):
        assert part in str(breach)
