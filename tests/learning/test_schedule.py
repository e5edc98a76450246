"""Schedules."""

import pytest

from rtl_core.learning.schedule import linear_decay


def test_linear_decay_starts_at_one_and_ends_at_its_share():
    assert [linear_decay(step, 5, 0.2) for step in range(5)] == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2])


def test_a_share_of_one_is_constant_and_a_single_step_is_whole():
    assert {linear_decay(step, 7, 1.0) for step in range(7)} == {1.0}
    assert linear_decay(0, 1, 0.1) == 1.0


def test_steps_beyond_the_plan_stay_at_the_end():
    assert linear_decay(9, 5, 0.5) == pytest.approx(0.5)
