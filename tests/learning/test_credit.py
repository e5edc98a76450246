"""Credit of a group: later turns, and answers that were cut at the limit by each of the three ways, with numbers worked out by hand."""

import pytest

from rtl_core.learning.credit import Rules, credit, overlong_penalty

REWARDS = [1.0, 0.5, 0.3]
LENGTHS = [40, 90, 100]
CUT = [False, False, True]


def test_the_penalty_rises_over_the_buffer_and_is_whole_for_a_cut_answer():
    got = overlong_penalty([79, 80, 85, 95, 100, 100], [False] * 5 + [True], Rules(100, buffer=20, penalty=0.4))
    assert got.tolist() == pytest.approx([0.0, 0.0, 0.1, 0.3, 0.4, 0.4])


def test_without_a_buffer_only_cut_answers_are_penalised():
    got = overlong_penalty(LENGTHS, CUT, Rules(100, buffer=0, penalty=0.5))
    assert got.tolist() == [0.0, 0.0, 0.5]


def test_a_buffer_longer_than_the_limit_is_refused():
    with pytest.raises(ValueError, match="does not fit"):
        overlong_penalty([1], [False], Rules(10, buffer=11, penalty=1.0))
    with pytest.raises(ValueError, match="marks"):
        overlong_penalty([1, 2], [False], Rules(10, buffer=0, penalty=1.0))


def test_keep_takes_the_rewards_as_they_are():
    _, advantages, counts = credit(REWARDS, LENGTHS, CUT, Rules(100))
    assert advantages.tolist() == pytest.approx([0.4, -0.1, -0.3])
    assert counts.all()


def test_mask_leaves_a_cut_answer_out_of_the_baseline_too():
    _, advantages, counts = credit(REWARDS, LENGTHS, CUT, Rules(100, truncated="mask"))
    assert advantages.tolist() == pytest.approx([0.25, -0.25, 0.0])
    assert counts.tolist() == [True, True, False]
    _, advantages, counts = credit(REWARDS, LENGTHS, [True] * 3, Rules(100, truncated="mask"))
    assert not advantages.any()
    assert not counts.any()


def test_a_doubtful_pass_keeps_its_reward_is_masked_or_earns_nothing():
    doubtful = [True, False, False]
    kept = credit(REWARDS, LENGTHS, CUT, Rules(100), doubtful_G=doubtful)
    assert kept.advantages_G.tolist() == pytest.approx([0.4, -0.1, -0.3])
    masked = credit(REWARDS, LENGTHS, CUT, Rules(100, doubtful="mask"), doubtful_G=doubtful)
    assert masked.advantages_G.tolist() == pytest.approx([0.0, 0.1, -0.1])
    assert masked.counts_G.tolist() == [False, True, True]
    assert masked.rewards_G[0] == 1.0
    zero = credit(REWARDS, LENGTHS, CUT, Rules(100, doubtful="zero"), doubtful_G=doubtful)
    assert zero.rewards_G.tolist() == [0.0, 0.5, 0.3]
    assert zero.counts_G.all()
    assert REWARDS == [1.0, 0.5, 0.3]


def test_penalise_takes_off_before_the_group_is_centred():
    # Penalties 0, 0.1, 0.2: rewards 1.0, 0.4, 0.1 around their mean of 0.5.
    rewards, advantages, counts = credit(
        REWARDS, LENGTHS, CUT, Rules(100, truncated="penalise", penalty=0.2, buffer=20)
    )
    assert rewards.tolist() == pytest.approx([1.0, 0.4, 0.1])
    assert advantages.tolist() == pytest.approx([0.5, -0.1, -0.4])
    assert counts.all()


def test_leave_one_out_of_two_that_count_is_their_difference():
    _, advantages, _ = credit(REWARDS, LENGTHS, CUT, Rules(100, truncated="mask", baseline="leave_one_out"))
    assert advantages.tolist() == pytest.approx([0.5, -0.5, 0.0])
