"""The order of problems."""

from __future__ import annotations

import itertools

from rtl_core.learning.curriculum import order_problems, plan_epoch
from rtl_core.problems.problem import Problem


def problem(name: str, difficulty: str, golden: str) -> Problem:
    return Problem(
        id=name, source="test", category="cid003", difficulty=difficulty, prompt=name, targets=("rtl/a.v",),
        harness={}, golden={"rtl/a.v": golden},
    )  # fmt: skip


def test_easy_problems_come_first_then_shorter_answers() -> None:
    problems = [
        problem("d", "hard", "x"),
        problem("c", "easy", "xxx"),
        problem("b", "easy", "x"),
        problem("a", "medium", ""),
    ]
    assert [p.id for p in order_problems(problems, "easy_to_hard", 0)] == ["b", "c", "a", "d"]


def test_shuffled_depends_on_the_seed_alone() -> None:
    problems = [problem(f"p{i:02}", "easy", "x") for i in range(30)]
    first = [p.id for p in order_problems(problems, "shuffled", 1)]
    assert first == [p.id for p in order_problems(problems[::-1], "shuffled", 1)]
    assert first != [p.id for p in order_problems(problems, "shuffled", 2)]


def test_an_epoch_holds_each_problem_once_and_differs_from_the_next() -> None:
    ids = [f"p{i:02}" for i in range(21)]
    for order in ("easy_to_hard", "shuffled"):
        first, second = (plan_epoch(ids, 4, epoch, seed=0, order=order) for epoch in (0, 1))
        assert sorted(itertools.chain(*first)) == ids == sorted(itertools.chain(*second))
        assert first != second
        assert [len(step) for step in first] == [4, 4, 4, 4, 4, 1]


def test_easy_to_hard_keeps_the_slope() -> None:
    ids = [f"p{i:03}" for i in range(64)]
    steps = plan_epoch(ids, 4, 0, seed=3, order="easy_to_hard")
    assert max(steps[0]) < min(steps[8])
