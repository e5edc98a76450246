"""The learning rate and λ over the steps, against values worked out by hand."""

import math

import pytest

from rtl_core.learning.schedule import controlled_weight, scheduled


def test_a_constant_weight_is_the_first_at_every_step():
    assert {scheduled(step, 9, 0.3, 0.0, "constant") for step in range(12)} == {0.3}


def test_linear_goes_in_a_straight_line_and_stays_at_its_end():
    got = [scheduled(step, 5, 1.0, 0.2, "linear") for step in range(7)]
    assert got == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2, 0.2, 0.2])


def test_cosine_is_half_way_in_the_middle_and_flat_at_both_ends():
    got = [scheduled(step, 5, 1.0, 0.0, "cosine") for step in range(5)]
    assert got == pytest.approx([1.0, (2 + math.sqrt(2)) / 4, 0.5, (2 - math.sqrt(2)) / 4, 0.0])
    assert scheduled(3, 5, 0.0, 2.0, "cosine") == pytest.approx(2 - 2 * (2 - math.sqrt(2)) / 4)


def test_a_schedule_over_a_part_of_the_run_is_at_its_end_after_it():
    def over(part, steps=10):
        return [scheduled(step, steps, 0.6, 0.0, "linear", part) for step in range(steps)]

    assert over(0.4) == pytest.approx([0.6, 0.4, 0.2, 0.0, 0, 0, 0, 0, 0, 0])
    assert over(0.4)[3:] == [0.0] * 7  # exactly: from there on the teacher is not asked
    assert over(0.01) == [0.6, *[0.0] * 9]
    assert over(1.0, 4) == pytest.approx([0.6, 0.4, 0.2, 0.0])


def test_a_run_of_one_step_has_the_first_weight():
    for schedule in ("constant", "linear", "cosine"):
        assert scheduled(0, 1, 0.4, 0.0, schedule) == pytest.approx(0.4)


def test_a_target_is_no_schedule():
    with pytest.raises(ValueError, match="what was measured"):
        scheduled(0, 2, 0.1, 0.0, "target")


def held(weight: float, kl: float, *, target: float = 0.5, gain: float = 0.1) -> float:
    return controlled_weight(weight, kl, target, gain=gain, lowest=0.01, highest=2.0)


def test_the_controller_moves_by_gain_times_the_relative_error():
    assert held(1.0, 0.55) == pytest.approx(1.0 + 0.1 * 0.1)
    assert held(1.0, 0.45, gain=0.5) == pytest.approx(1.0 - 0.5 * 0.1)
    assert held(0.3, 0.5) == pytest.approx(0.3)


def test_the_controllers_error_is_cut_at_a_fifth_and_its_weight_at_its_bounds():
    assert held(1.0, 50.0) == pytest.approx(1.02)
    assert held(1.0, -3.0) == pytest.approx(0.98)
    assert held(1.999, 50.0) == 2.0
    assert held(0.0101, 0.0) == 0.01
    with pytest.raises(ValueError, match="positive"):
        held(1.0, 0.5, target=0.0)


def test_the_controller_holds_a_plant_that_answers_to_the_weight():
    """A KL that falls as 1 / λ: the weight must come to rest where the KL is the target."""
    weight = 0.1
    for _ in range(400):
        weight = held(weight, 0.2 / weight, target=0.25)
    assert 0.2 / weight == pytest.approx(0.25, rel=1e-3)
