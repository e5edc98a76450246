"""GDPO and MaxRL against their formulas, on random and on degenerate groups."""

import numpy as np
import pytest

from rtl_core.learning.advantage import component_advantages, group_advantages
from rtl_core.learning.credit import Components, Rules, credit

WEIGHTS = np.array([0.1, 0.2, 0.3, 1.0])
STAGES = np.array([[1, 1, 1, 1], [1, 1, 1, 0], [1, 0, 1, 0], [0, 0, 0, 0]], float)


def test_each_component_is_normalised_by_itself_and_summed_with_its_weight():
    rng = np.random.default_rng(0)
    for size in (2, 3, 8):
        values_GC = rng.random((size, 4)).round(1)
        by_hand = np.zeros(size)
        for weight, column in zip(WEIGHTS, values_GC.T, strict=True):
            spread = np.sqrt(sum((v - sum(column) / size) ** 2 for v in column) / size)
            for i, value in enumerate(column):
                by_hand[i] += weight * (value - sum(column) / size) / spread if spread else 0.0
        assert component_advantages(values_GC, WEIGHTS) == pytest.approx(by_hand)
        left_out = component_advantages(values_GC, WEIGHTS, baseline="leave_one_out")
        assert left_out == pytest.approx(by_hand * size / (size - 1))


def test_equal_totals_earned_at_different_stages_differ_and_equal_answers_do_not():
    values_GC = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    weights_C = np.array([1.0, 1.0])
    assert not group_advantages(values_GC @ weights_C, scale="std").any()
    assert not component_advantages(values_GC, weights_C).any()  # normalised, the two cancel
    weights_C = np.array([0.5, 1.0])
    assert component_advantages(values_GC, weights_C) == pytest.approx(
        [-0.5 * 2**0.5, 0.25 * 2**0.5, 0.25 * 2**0.5]
    )
    values_GC = np.array([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    assert np.ptp(values_GC.sum(axis=1)) == 0
    assert component_advantages(values_GC, np.ones(3)).any()


@pytest.mark.parametrize(
    "values_GC", [np.ones((4, 4)), np.zeros((4, 4)), STAGES[:1], np.zeros((3, 0))]
)
def test_groups_without_a_difference_have_no_advantages(values_GC):
    weights_C = WEIGHTS[: values_GC.shape[1]]
    assert component_advantages(values_GC, weights_C).tolist() == [0.0] * len(values_GC)
    rewards_G = values_GC @ weights_C
    assert group_advantages(rewards_G, scale="mean").tolist() == [0.0] * len(values_GC)


def test_the_rarer_a_pass_the_more_it_counts_when_divided_by_the_mean():
    for size in (2, 4, 6):
        for passes in range(1, size):
            rewards_G = np.array([1.0] * passes + [0.0] * (size - passes))
            expected = [size / passes - 1] * passes + [-1.0] * (size - passes)
            assert group_advantages(rewards_G, scale="mean") == pytest.approx(expected)


def test_division_by_the_mean_is_bounded_also_for_penalties():
    rng = np.random.default_rng(1)
    for _ in range(200):
        rewards_G = rng.normal(0, 1, rng.integers(2, 9))
        found = group_advantages(rewards_G, scale="mean")
        assert np.isfinite(found).all()
        assert np.abs(found).max() <= len(rewards_G) + 1


def test_the_penalty_of_a_truncated_answer_is_a_component_and_doubtful_ones_have_none():
    rules = Rules(100, truncated="penalise", penalty=0.5, doubtful="zero")
    cut, doubtful = [False, False, True, False], [True, False, False, False]
    found = credit(
        STAGES @ WEIGHTS, [50, 50, 100, 50], cut, rules, doubtful, Components(STAGES, WEIGHTS)
    )
    values_GC = np.column_stack([STAGES, [0, 0, -0.5, 0]])
    values_GC[0] = 0
    assert found.rewards_G == pytest.approx([0, 0.6, 0.4 - 0.5, 0])
    expected = component_advantages(values_GC, np.append(WEIGHTS, 0.5))
    assert found.advantages_G == pytest.approx(expected)
    assert expected[2] < expected[3]  # it would lead without the penalty


def test_masked_answers_are_no_part_of_a_component():
    rules = Rules(100, truncated="mask", reward_weight=2.0)
    cut = [False, False, False, True]
    found = credit(STAGES @ WEIGHTS, [1] * 4, cut, rules, None, Components(STAGES, WEIGHTS))
    expected = 2 * component_advantages(STAGES[:3], WEIGHTS)
    assert found.advantages_G == pytest.approx([*expected, 0.0])
    assert found.counts_G.tolist() == [True, True, True, False]
    none = credit(
        STAGES @ WEIGHTS, [1] * 4, [True] * 4, rules, None, Components(STAGES, WEIGHTS)
    )
    assert not none.advantages_G.any()
