"""The interval over seeds and problems has its nominal coverage, and is no narrower than the one over problems alone."""

import numpy as np
import pytest

from benchmarks.learning.crossed import crossed_interval
from rtl_core.learning.intervals import mean_interval, t_quantile


def test_two_by_two_by_hand():
    # Rows are seeds. Means: problems 1, 3; seeds 1, 3; mean 2. MS_P = 2·2 = 4, MS_S = 2·2 = 4, rest 0, variance 8 / 4 = 2,
    # freedom 64 / (16 + 16) = 2.
    found = crossed_interval([[0.0, 2.0], [2.0, 4.0]])
    half = t_quantile(0.975, 2) * np.sqrt(2.0)
    assert found.mean == pytest.approx(2.0)
    assert (found.lo, found.hi) == pytest.approx((2.0 - half, 2.0 + half))


def test_one_seed_is_the_interval_over_problems():
    rates = [0.0, 0.25, 0.5, 1.0, 0.75]
    one, known = crossed_interval([rates], bounds=(0, 1)), mean_interval(rates)
    assert (one.lo, one.hi) == pytest.approx((known.lo, known.hi))


def test_seeds_that_agree_do_not_make_the_interval_narrower_than_problems_alone():
    rng = np.random.default_rng(3)
    rates_P = rng.uniform(size=40)
    table_SP = np.stack([rates_P, rates_P, rates_P])
    found, alone = crossed_interval(table_SP), mean_interval(rates_P)
    assert found.hi - found.lo == pytest.approx(alone.hi - alone.lo)


def test_coverage():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(600):
        problems_P, seeds_S = rng.normal(0, 0.3, 30), rng.normal(0, 0.05, 3)
        table_SP = 0.1 + problems_P[None, :] + seeds_S[:, None] + rng.normal(0, 0.2, (3, 30))
        found = crossed_interval(table_SP)
        hits += found.lo <= 0.1 <= found.hi
    assert 0.92 <= hits / 600 <= 0.995


def test_equal_rates_are_no_certainty_and_equal_differences_are_a_point():
    assert crossed_interval(np.ones((3, 20)), bounds=(0, 1)).lo < 0.9
    assert crossed_interval(np.zeros((3, 20))).hi == 0.0


def test_values_that_are_no_rates_are_rejected():
    with pytest.raises(ValueError, match="between 0 and 1"):
        crossed_interval([[0.5, 1.5]], bounds=(0, 1))
