"""Pools of problems: the pool of a problem, when it rests, and what a step draws."""

import random
from collections import Counter

import pytest

from rtl_core.learning.pools import GroupResult, PoolRules, Standing, draw, pool_of, standings

RULES = PoolRules(window=2, rest_after=2, rest_steps=10)


def group(step: int, passed: int, graded: int = 4, problem: str = "p") -> GroupResult:
    return GroupResult(step, problem, passed, graded)


def stand(*results: GroupResult, rules: PoolRules = RULES) -> Standing:
    return standings({"p": "normal"}, results, rules)["p"]


def test_bounds_of_the_pools():
    assert [pool_of(rate, RULES) for rate in (0.0, 0.24, 0.25, 0.74, 0.75, 1.0)] == [
        "hard", "hard", "normal", "normal", "easy", "easy",
    ]  # fmt: skip


def test_a_problem_moves_with_the_pass_rate_of_its_last_groups():
    assert stand() == Standing("normal", -1, 0)
    assert stand(group(3, 0)).pool == "hard"
    # 0/4 and 3/4: a rate of 3/8.
    assert stand(group(3, 0), group(7, 3)) == Standing("normal", 7, 0)
    # The window of two ignores the first: 3/4 and 3/4.
    assert stand(group(3, 0), group(7, 3), group(9, 3)).pool == "easy"
    # The order of the results does not matter.
    assert stand(group(9, 3), group(3, 0), group(7, 3)).pool == "easy"


@pytest.mark.parametrize("passed", [0, 4])
def test_a_problem_that_always_or_never_passes_rests_and_returns(passed):
    assert stand(group(2, passed)).rests_until == 0
    resting = stand(group(2, passed), group(5, passed))
    assert resting.rests_until == 16
    # Tried again at 16: with the same result it rests again; a mixed group ends the rest.
    assert stand(group(2, passed), group(5, passed), group(16, passed)).rests_until == 27
    assert stand(group(2, passed), group(5, passed), group(16, 2)).rests_until == 0
    # One group of each kind is no reason to rest.
    assert stand(group(2, passed), group(5, 4 - passed)).rests_until == 0


def test_a_quarantined_problem_rests_at_once_and_keeps_its_pool():
    assert stand(group(4, 0, graded=0)) == Standing("normal", 4, 15)
    assert stand(group(1, 0), group(4, 0, graded=0)) == Standing("hard", 4, 15)


def test_with_rest_after_0_only_quarantined_problems_rest():
    rules = PoolRules(rest_after=0, rest_steps=10)
    assert stand(group(2, 0), group(3, 0), group(4, 0), rules=rules).rests_until == 0
    assert stand(group(2, 0, graded=0), rules=rules).rests_until == 13


def test_a_step_draws_different_problems_by_weight_and_the_same_for_the_same_seed():
    now = {
        f"{pool}{i}": Standing(pool) for pool in ("easy", "normal", "hard") for i in range(200)
    }
    weights = {"easy": 1.0, "normal": 2.0, "hard": 1.0}
    drawn = draw(now, 0, 200, random.Random(1), weights)
    assert len(set(drawn)) == 200
    assert drawn == draw(dict(reversed(now.items())), 0, 200, random.Random(1), weights)
    assert drawn != draw(now, 0, 200, random.Random(2), weights)
    counts = Counter(problem.rstrip("0123456789") for problem in drawn)
    assert 75 <= counts["normal"] <= 125
    assert 30 <= counts["easy"] <= 70


def test_within_a_pool_the_problem_unseen_for_longest_comes_first():
    now = {
        "a": Standing("normal", 5),
        "b": Standing("normal", 2),
        "c": Standing("normal"),
        "d": Standing("normal", 9),
    }
    assert draw(now, 10, 3, random.Random(0), {"normal": 1.0}) == ["c", "b", "a"]


def test_a_pool_without_weight_is_used_only_when_others_are_empty():
    now = {"e": Standing("easy"), "n": Standing("normal"), "h": Standing("hard")}
    assert set(draw(now, 0, 2, random.Random(0), {"normal": 1.0, "hard": 1.0})) == {"n", "h"}
    assert set(draw(now, 0, 3, random.Random(0), {"normal": 1.0, "hard": 1.0})) == {
        "n",
        "h",
        "e",
    }


def test_resting_problems_are_drawn_last_and_in_the_order_of_their_return():
    now = {
        "a": Standing("easy", 1, 30),
        "b": Standing("hard", 1, 20),
        "c": Standing("normal", 1, 0),
    }
    assert draw(now, 10, 1, random.Random(0), PoolRules().pool_weights) == ["c"]
    assert draw(now, 10, 2, random.Random(0), PoolRules().pool_weights) == ["c", "b"]
    assert set(draw(now, 20, 2, random.Random(0), PoolRules().pool_weights)) == {"b", "c"}
    assert len(draw(now, 10, 9, random.Random(0), PoolRules().pool_weights)) == 3
