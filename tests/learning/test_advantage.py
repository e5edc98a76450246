"""Advantages and KL compared with hand-calculated values and a second derivation."""

import math

import numpy as np
import pytest

from rtl_core.learning.advantage import group_advantages, kl_share, token_advantages
from rtl_core.learning.kl import discounted_future_sum, k1, k2, k3


def test_group_advantages_are_rewards_minus_their_mean():
    assert group_advantages(np.array([1.6, 0.4, 0.4, 0.0])).tolist() == pytest.approx(
        [1.0, -0.2, -0.2, -0.6]
    )


@pytest.mark.parametrize("scale", ["none", "std", "mean"])
@pytest.mark.parametrize("baseline", ["group_mean", "leave_one_out"])
def test_equal_rewards_give_no_signal(baseline, scale):
    assert not group_advantages(
        np.array([0.1 + 0.2 + 0.3] * 6), baseline=baseline, scale=scale
    ).any()


def test_leave_one_out_compares_with_the_mean_of_the_others():
    rewards_G = np.array([1.6, 0.4, 0.1])
    by_hand = [1.6 - 0.25, 0.4 - 0.85, 0.1 - 1.0]
    assert group_advantages(rewards_G, baseline="leave_one_out").tolist() == pytest.approx(
        by_hand
    )


def test_std_normalised_group_has_unit_spread():
    advantages_G = group_advantages(np.array([0.0, 1.0, 1.0, 2.0]), scale="std")
    assert advantages_G.tolist() == pytest.approx([-math.sqrt(2), 0.0, 0.0, math.sqrt(2)])


def test_kl_estimators_at_a_ratio_of_two():
    # The student gives 0.5, the teacher 0.25: r = q/p = 1/2.
    student_T, teacher_T = np.log([0.5]), np.log([0.25])
    assert k1(student_T, teacher_T)[0] == pytest.approx(math.log(2))
    assert k2(student_T, teacher_T)[0] == pytest.approx(math.log(2) ** 2 / 2)
    assert k3(student_T, teacher_T)[0] == pytest.approx(0.5 - 1 + math.log(2))


def test_k1_and_k3_average_to_the_exact_kl_over_the_students_distribution():
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(8)), rng.dirichlet(np.ones(8))
    exact = float(np.sum(p * np.log(p / q)))
    assert float(np.sum(p * k1(np.log(p), np.log(q)))) == pytest.approx(exact)
    assert float(np.sum(p * k3(np.log(p), np.log(q)))) == pytest.approx(exact)
    assert (k3(np.log(p), np.log(q)) >= 0).all()


def test_discounted_future_sum_matches_the_double_sum():
    values_T = np.array([1.0, -2.0, 3.0, 0.5])
    for discount in (0.0, 0.5, 1.0):
        direct = [sum(discount ** (u - t) * values_T[u] for u in range(t, 4)) for t in range(4)]
        assert discounted_future_sum(values_T, discount).tolist() == pytest.approx(direct)


def test_token_advantage_is_the_reward_part_minus_lambda_times_kl():
    student_T, teacher_T = np.array([-1.0, -0.5, -2.0]), np.array([-1.5, -0.5, -1.0])
    got = token_advantages(0.3, student_T, teacher_T, kl_weight=0.1)
    assert got.tolist() == pytest.approx([0.3 - 0.05, 0.3, 0.3 + 0.1])
    clamped = token_advantages(0.0, student_T, teacher_T, kl_weight=1.0, kl_clamp=0.75)
    assert clamped.tolist() == pytest.approx([-0.5, 0.0, 0.75])
    discounted = token_advantages(0.0, student_T, teacher_T, kl_weight=1.0, kl_discount=1.0)
    assert discounted.tolist() == pytest.approx([0.5, 1.0, 1.0])


def test_rl_alone_needs_no_teacher_and_a_kl_weight_does():
    student_T = np.array([-1.0, -2.0])
    assert token_advantages(0.5, student_T, None, kl_weight=0.0).tolist() == [0.5, 0.5]
    with pytest.raises(ValueError, match="needs the teacher"):
        token_advantages(0.5, student_T, None, kl_weight=0.1)
    with pytest.raises(ValueError, match="teacher scored"):
        token_advantages(0.5, student_T, np.array([-1.0]), kl_weight=0.1)


def test_kl_share_uses_squares_at_tokens_of_which_the_student_is_unsure():
    sure, unsure = np.log([0.96, 0.99]), np.log([0.5, 0.94])
    # A² = 4 at two unsure tokens, with KL parts 1 and 3: 10 of 18. Sure tokens are ignored.
    assert kl_share([(2.0, np.array([1.0, -3.0]), unsure)]) == pytest.approx(10 / 18)
    assert kl_share(
        [(2.0, np.array([1.0, -3.0]), unsure), (5.0, np.array([9.0, 9.0]), sure)]
    ) == pytest.approx(10 / 18)
    assert kl_share([(2.0, np.zeros(2), unsure)]) == 0.0
    assert kl_share([(0.0, np.array([0.1, 0.0]), unsure)]) == 1.0
    assert kl_share([(7.0, np.ones(2), sure)]) == kl_share([]) == 0.0
