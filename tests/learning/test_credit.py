"""Credit of a group: truncated and doubtful answers with each setting, compared with hand-calculated values."""

import pytest

from rtl_core.learning.credit import Rules, credit, overlong_penalty

REWARDS = [1.0, 0.5, 0.3]
LENGTHS = [40, 90, 100]
CUT = [False, False, True]


@pytest.mark.parametrize(
    ("lengths", "cut", "rules", "expected"),
    [
        ([79, 80, 85, 95, 100, 100], [False] * 5 + [True], Rules(100, buffer=20, penalty=0.4), [0, 0, 0.1, 0.3, 0.4, 0.4]),
        (LENGTHS, CUT, Rules(100, buffer=0, penalty=0.5), [0, 0, 0.5]),
    ],
)  # fmt: skip
def test_the_penalty_rises_over_the_buffer_and_is_full_for_a_truncated_answer(
    lengths, cut, rules, expected
):
    assert overlong_penalty(lengths, cut, rules).tolist() == pytest.approx(expected)


ALL, DOUBTFUL = [True] * 3, [True, False, False]
SETTINGS = {
    "keep": (Rules(100), CUT, REWARDS, [0.4, -0.1, -0.3], ALL),
    "mask excludes from the baseline": (Rules(100, truncated="mask"), CUT, REWARDS, [0.25, -0.25, 0], [True, True, False]),
    "mask all": (Rules(100, truncated="mask"), ALL, REWARDS, [0, 0, 0], [False] * 3),
    # Penalties 0, 0.1, 0.2: rewards 1.0, 0.4, 0.1 with a mean of 0.5.
    "penalise before centring": (
        Rules(100, truncated="penalise", penalty=0.2, buffer=20), CUT, [1.0, 0.4, 0.1], [0.5, -0.1, -0.4], ALL,
    ),
    "leave one out of two": (
        Rules(100, truncated="mask", baseline="leave_one_out"), CUT, REWARDS, [0.5, -0.5, 0], [True, True, False],
    ),
    "mask doubtful": (Rules(100, doubtful="mask"), CUT, REWARDS, [0, 0.1, -0.1], [False, True, True]),
    "zero doubtful": (Rules(100, doubtful="zero"), CUT, [0, 0.5, 0.3], [-0.8 / 3, 0.7 / 3, 0.1 / 3], ALL),
}  # fmt: skip
"""Name: rules, truncated answers, rewards, advantages, answers that count. The first answer is doubtful."""


@pytest.mark.parametrize(
    ("rules", "cut", "rewards", "advantages", "counts"), SETTINGS.values(), ids=SETTINGS
)
def test_credit_with_each_setting(rules, cut, rewards, advantages, counts):
    found = credit(REWARDS, LENGTHS, cut, rules, doubtful_G=DOUBTFUL)
    assert found.rewards_G.tolist() == pytest.approx(rewards)
    assert found.advantages_G.tolist() == pytest.approx(advantages)
    assert found.counts_G.tolist() == counts
    assert REWARDS == [1.0, 0.5, 0.3], "the input is not changed"


def test_without_an_audit_no_answer_is_masked():
    assert credit(REWARDS, LENGTHS, CUT, Rules(100, doubtful="mask")).counts_G.all()
