"""When a run has left its safe range."""

import math

from rtl_core.learning.health import METRICS, breaches

ENTROPY = {"optim/entropy": (0.1, None)}


def steps(*values: float) -> list[dict[str, float]]:
    return [{"optim/entropy": value} for value in values]


def test_one_step_outside_is_a_breach_and_says_what_how_much_and_where_it_should_be():
    (breach,) = breaches(steps(0.5, 0.05), ENTROPY, patience=1)
    assert (breach.metric, breach.values) == ("optim/entropy", (0.05,))
    for part in ("optim/entropy", METRICS["optim/entropy"], "0.05", "0.1 to ∞"):
        assert part in str(breach)


def test_the_bounds_themselves_are_safe():
    assert breaches([{"groups/all_bad": 0.9}], {"groups/all_bad": (0.2, 0.9)}, patience=1) == []
    assert len(breaches([{"groups/all_bad": 0.91}], {"groups/all_bad": (0.2, 0.9)}, patience=1)) == 1


def test_patience_wants_every_one_of_the_last_steps_outside():
    assert breaches(steps(0.05, 0.05), ENTROPY, patience=3) == []
    assert breaches(steps(0.05, 0.2, 0.05), ENTROPY, patience=3) == []
    (breach,) = breaches(steps(0.9, 0.05, 0.04, 0.03), ENTROPY, patience=3)
    assert breach.values == (0.05, 0.04, 0.03)
    assert "3 consecutive steps" in str(breach)


def test_a_step_that_did_not_measure_interrupts_the_row_and_nan_is_outside():
    assert breaches([*steps(0.05), {}, *steps(0.05)], ENTROPY, patience=3) == []
    assert len(breaches(steps(math.nan), ENTROPY, patience=1)) == 1
