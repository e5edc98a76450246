"""The learning rate and λ over the steps, compared with hand-calculated values."""

import math

import pytest

from rtl_core.learning.schedule import controlled_weight, scheduled

UP, DOWN = (2 + math.sqrt(2)) / 4, (2 - math.sqrt(2)) / 4


@pytest.mark.parametrize(
    ("steps", "first", "last", "schedule", "part", "expected"),
    [
        (3, 0.3, 0.0, "constant", 1.0, [0.3] * 5),
        (5, 1.0, 0.2, "linear", 1.0, [1.0, 0.8, 0.6, 0.4, 0.2, 0.2, 0.2]),
        (5, 1.0, 0.0, "cosine", 1.0, [1.0, UP, 0.5, DOWN, 0.0]),
        (5, 0.0, 2.0, "cosine", 1.0, [0.0, 2 * DOWN, 1.0, 2 * UP, 2.0]),
        (10, 0.6, 0.0, "linear", 0.4, [0.6, 0.4, 0.2, *[0.0] * 7]),
        (10, 0.6, 0.0, "linear", 0.01, [0.6, *[0.0] * 9]),
        (4, 0.6, 0.0, "linear", 1.0, [0.6, 0.4, 0.2, 0.0]),
        *((1, 0.4, 0.0, schedule, 1.0, [0.4]) for schedule in ("constant", "linear", "cosine")),
    ],
)
def test_values_of_a_schedule(steps, first, last, schedule, part, expected):
    values = [
        scheduled(step, steps, first, last, schedule, part) for step in range(len(expected))
    ]
    assert values == pytest.approx(expected)
    if schedule == "linear":  # exactly, because the teacher is not asked where λ is 0
        assert [value == 0 for value in values] == [value == 0 for value in expected]


def test_a_target_is_no_schedule():
    with pytest.raises(ValueError, match="what was measured"):
        scheduled(0, 2, 0.1, 0.0, "target")


def held(weight: float, kl: float, *, target: float = 0.5, gain: float = 0.1) -> float:
    return controlled_weight(weight, kl, target, gain=gain, lowest=0.01, highest=2.0)


def test_the_controller_moves_by_gain_times_the_relative_error():
    assert held(1.0, 0.55) == pytest.approx(1.0 + 0.1 * 0.1)
    assert held(1.0, 0.45, gain=0.5) == pytest.approx(1.0 - 0.5 * 0.1)
    assert held(0.3, 0.5) == pytest.approx(0.3)


def test_the_controllers_error_is_clamped_to_a_fifth_and_its_weight_to_the_bounds():
    assert held(1.0, 50.0) == pytest.approx(1.02)
    assert held(1.0, -3.0) == pytest.approx(0.98)
    assert held(1.999, 50.0) == 2.0
    assert held(0.0101, 0.0) == 0.01


def test_the_controller_converges_to_the_target():
    """The KL falls as 1 / λ, so the weight must converge to where the KL is the target."""
    weight = 0.1
    for _ in range(400):
        weight = held(weight, 0.2 / weight, target=0.25)
    assert 0.2 / weight == pytest.approx(0.25, rel=1e-3)
