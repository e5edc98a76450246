"""pass@k, intervals and the paired test, compared with hand-calculated or tabulated values."""

import math
from itertools import combinations

import numpy as np
import pytest

from rtl_core.learning.intervals import mean_interval, paired_test, t_quantile, wilson
from rtl_core.learning.passk import pass_at_k_P


def test_pass_at_k_is_the_share_of_k_subsets_with_a_pass():
    for n in range(1, 8):
        for c in range(n + 1):
            for k in range(1, n + 1):
                subsets = list(combinations([1] * c + [0] * (n - c), k))
                assert pass_at_k_P([n], [c], k)[0] == pytest.approx(
                    sum(any(s) for s in subsets) / len(subsets)
                )


def test_pass_at_k_does_not_overflow():
    expected = 1 - math.comb(9_900, 100) / math.comb(10_000, 100)
    assert pass_at_k_P([10_000], [100], 100)[0] == pytest.approx(expected, rel=1e-9)


def test_pass_at_k_of_several_problems():
    np.testing.assert_allclose(pass_at_k_P([4, 4, 2], [1, 0, 2], 2), [0.5, 0.0, 1.0])


T_TABLE = (
    (0.975, 1, 12.706), (0.975, 2, 4.303), (0.975, 10, 2.228), (0.95, 5, 2.015), (0.995, 30, 2.750), (0.975, 10_000, 1.960),
)  # fmt: skip


@pytest.mark.parametrize(("p", "df", "tabulated"), T_TABLE)
def test_t_quantile_agrees_with_the_table(p, df, tabulated):
    assert t_quantile(p, df) == pytest.approx(tabulated, abs=6e-4)


def test_interval_over_problems_by_hand():
    # rates 0, 0.5, 1: mean 0.5, sd 0.5, half width 4.3027 * 0.5 / sqrt(3) = 1.242 -> clipped
    assert (mean_interval([0, 0.5, 1]).lo, mean_interval([0, 0.5, 1]).hi) == (0.0, 1.0)
    # rates 0.4, 0.5, 0.6: sd 0.1, half width 4.3027 * 0.1 / sqrt(3) = 0.24841
    found = mean_interval([0.4, 0.5, 0.6])
    assert found.mean == pytest.approx(0.5)
    assert (found.lo, found.hi) == (
        pytest.approx(0.25159, abs=1e-4),
        pytest.approx(0.74841, abs=1e-4),
    )


def test_equal_rates_give_a_wilson_interval():
    found = mean_interval([1.0] * 20)
    assert found.hi == pytest.approx(1.0)
    assert found.lo == pytest.approx(20 / (20 + 1.959964**2), abs=1e-6)
    assert mean_interval([0.0]).hi == pytest.approx(1.959964**2 / (1 + 1.959964**2), abs=1e-6)


def test_wilson_by_hand():
    # 8 of 10: (0.8 + 3.8415/20) / 1.38415 = 0.71672; half 0.22661 (Newcombe 1998's method 3)
    assert wilson(8, 10) == (pytest.approx(0.4902, abs=1e-4), pytest.approx(0.9433, abs=1e-4))


def test_the_interval_of_a_gain_is_close_to_t():
    rates = np.random.default_rng(1).uniform(0.2, 0.8, 60)
    first = paired_test(np.zeros(60), rates, seed=3)
    assert first.lo == pytest.approx(mean_interval(rates).lo, abs=0.01)


def test_coverage_of_intervals():
    rng = np.random.default_rng(5)
    hits = 0
    for _ in range(400):
        chances = rng.beta(1.2, 1.2, size=40)  # true mean 0.5
        found = mean_interval(rng.binomial(4, chances) / 4)
        hits += found.lo <= 0.5 <= found.hi
    assert 0.92 <= hits / 400 <= 0.98


def test_paired_test_is_exact_for_few_problems():
    # five gains of one size: only the patterns +++++ and ----- are as extreme, 2 of 32
    found = paired_test([0.0] * 5, [0.5] * 5)
    assert (found.p_value, found.better, found.worse) == (2 / 32, 5, 0)
    assert found.gain == pytest.approx(0.5)
    # gains +1, +1, -1: |sum| >= 1 always
    assert paired_test([0, 0, 1], [1, 1, 0]).p_value == 1.0


def test_paired_test_ignores_unchanged_problems():
    assert paired_test([0.0] * 5 + [1.0] * 30, [0.5] * 5 + [1.0] * 30).p_value == 2 / 32
    assert paired_test([0.5, 0.5], [0.5, 0.5]).p_value == 1.0


def test_few_problems_are_no_evidence():
    few = paired_test([0.25] * 4, [0.5, 0.75, 1.0, 0.75])
    assert few.lo > 0
    assert (few.p_value, few.sure) == (2 / 16, False)
    many = paired_test([0.25] * 8, [0.5, 0.75, 1.0, 0.75] * 2)
    assert many.sure


def test_equal_differences_have_no_interval():
    for before, after, sure in (
        ([0.5], [0.75], False),
        ([0.5, 1], [0.5, 1], False),
        ([0] * 6, [1] * 6, True),
    ):
        found = paired_test(before, after)
        assert np.isnan([found.lo, found.hi]).all()
        assert found.sure == sure


def test_paired_test_draws_with_a_seed_for_many_problems():
    before, after = np.zeros(50), np.linspace(0.2, 0.3, 50)
    found = paired_test(before, after, seed=1)
    assert found == paired_test(before, after, seed=1)
    assert found.p_value == pytest.approx(1 / 10_001)
    assert found.lo <= found.gain <= found.hi


def test_paired_test_has_few_false_alarms():
    rng = np.random.default_rng(9)
    alarms = sum(
        paired_test(
            rng.binomial(4, p := rng.random(40)) / 4, rng.binomial(4, p) / 4, draws=400, seed=i
        ).p_value
        < 0.05
        for i in range(300)
    )
    assert alarms / 300 < 0.09


def test_invalid_arguments_are_rejected():
    with pytest.raises(ValueError, match="same problems"):
        paired_test([0.1], [0.1, 0.2])
    with pytest.raises(ValueError, match="at least one"):
        mean_interval([])
    with pytest.raises(ValueError, match="between 0 and 1"):
        mean_interval([1.5])
