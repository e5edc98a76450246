"""Rates at equal difficulty: hand-calculated values, and simulated students whose true rate is known."""

import numpy as np
import pytest

from rtl_core.learning.equal_difficulty import Groups, base_rates, equal_difficulty, stratum

MANY = 1e6
"""A number of answers that outweighs every prior."""


def step(base: list[float], places: list[int], rates: list[float], answers: float) -> Groups:
    answers_G = np.full(len(places), answers)
    return Groups(np.array(base), places, np.array(rates) * answers_G, answers_G)


@pytest.mark.parametrize(
    ("places", "rates"), [([0], [0.8]), ([1], [0.2]), ([0, 1], [0.8, 0.2])]
)
def test_a_student_as_good_as_the_evaluated_one_has_its_rate_on_any_problems(places, rates):
    # Half of the problems are easy (0.8), half hard (0.2): 0.5 on all.
    assert equal_difficulty([step([0.8, 0.2], places, rates, MANY)]) == [
        pytest.approx(0.5, abs=1e-3)
    ]


def test_for_equal_problems_the_rate_is_the_raw_one():
    (rate,) = equal_difficulty([step([0.3] * 4, [0, 1, 2, 3], [0.6] * 4, MANY)])
    assert rate == pytest.approx(0.6, abs=1e-3)


def test_rates_of_0_and_100_percent_stay_finite_and_in_order():
    rates = [
        equal_difficulty([step([0.5, 0.3], [1], [passed / 4], 4)])[0] for passed in range(5)
    ]
    assert all(0 < rate < 1 for rate in rates)
    assert rates == sorted(rates)


def test_fifths_of_the_training_problems_and_their_rates():
    training = list(range(10))
    assert [stratum(key, training) for key in (-1, 0, 1, 2, 9, 99)] == [0, 0, 0, 1, 4, 4]
    rates = base_rates([0, 0, 4], np.array([8.0, 8.0, 0.0]), np.array([8.0, 8.0, 8.0]))
    overall = 16.5 / 25
    assert rates[0] == pytest.approx((16 + 4 * overall) / 20)
    assert rates[1:4] == pytest.approx([overall] * 3), "these were not evaluated"
    assert rates[4] == pytest.approx(4 * overall / 12)


@pytest.mark.parametrize("learns", [0.0, 3.0])
def test_the_rate_of_a_simulated_student_is_right_while_problems_get_harder(learns):
    """160 problems from easy to hard, 40 steps of 4, 8 answers each; difficulties differ within a fifth too."""
    rng, steps, problems = np.random.default_rng(7), 40, 160
    told, raw = np.zeros((2, 20, steps))
    for run in range(20):
        logit_P = np.linspace(2.0, -2.0, problems)
        base_P = 1 / (1 + np.exp(-logit_P.reshape(5, -1).mean(1).repeat(problems // 5)))
        ability = np.linspace(0.0, learns, steps)
        true_P = logit_P + rng.normal(0, 0.5, problems)
        passed = [
            rng.binomial(8, 1 / (1 + np.exp(-(true_P[4 * t : 4 * t + 4] + ability[t])))).astype(
                float
            )
            for t in range(steps)
        ]
        groups = [
            Groups(base_P, range(4 * t, 4 * t + 4), passed[t], np.full(4, 8.0))
            for t in range(steps)
        ]
        told[run], raw[run] = equal_difficulty(groups), [found.sum() / 32 for found in passed]
    truth = (1 / (1 + np.exp(-(np.linspace(2.0, -2.0, problems)[:, None] + ability)))).mean(0)
    # By fifths of the run, because problems also get harder within a fifth, which is not measured.
    told_F, raw_F, truth_F = (
        curve.reshape(5, -1).mean(1) for curve in (told.mean(0), raw.mean(0), truth)
    )
    assert abs(told_F - truth_F).max() < 0.06
    assert raw_F[-1] - truth_F[-1] < -0.1, "the raw curve is wrong"
