"""The order of problems."""

import itertools
from collections import Counter

from rtl_core.learning.curriculum import (
    UNMEASURED,
    MeasuredRates,
    first_pool,
    order_problems,
    plan_epoch,
    replacement,
    replacement_candidates,
)
from rtl_core.learning.pools import PoolRules
from rtl_grader.types.problem import Problem
from tests.nouns import a_problem


def problem(name: str, difficulty: str, golden: str) -> Problem:
    return a_problem(id=name, difficulty=difficulty, golden={"rtl/m.sv": golden})


def test_easy_problems_come_first_then_shorter_answers():
    given = [("d", "hard", "x"), ("c", "easy", "xxx"), ("b", "easy", "x"), ("a", "medium", "")]
    problems = [problem(*fields) for fields in given]
    assert [p.id for p in order_problems(problems, "easy_to_hard", 0)] == ["b", "c", "a", "d"]


def test_of_masked_problems_the_smaller_part_comes_first():
    whole = {"rtl/m.sv": "module m; assign y = a & b; endmodule" + 40 * " "}
    frames = {
        "part": "module m; assign y = [MASKED]; endmodule" + 40 * " ",
        "most": "module m; [MASKED]",
    }
    problems = [
        a_problem(id=name, difficulty="easy", golden=whole, frame={"rtl/m.sv": frame})
        for name, frame in frames.items()
    ]
    short = problem("short", "easy", "x" * 20)
    ordered = order_problems([*problems, short], "easy_to_hard", 0)
    assert [p.id for p in ordered] == ["part", "short", "most"]


def test_shuffled_depends_on_the_seed_alone():
    problems = [problem(f"p{i:02}", "easy", "x") for i in range(30)]
    first = [p.id for p in order_problems(problems, "shuffled", 1)]
    assert first == [p.id for p in order_problems(problems[::-1], "shuffled", 1)]
    assert first != [p.id for p in order_problems(problems, "shuffled", 2)]


def test_an_epoch_holds_each_problem_once_and_differs_from_the_next():
    ids = [f"p{i:02}" for i in range(21)]
    for order in ("easy_to_hard", "shuffled"):
        first, second = (
            plan_epoch(ids, [4] * 5 + [1], epoch, seed=0, order=order) for epoch in (0, 1)
        )
        assert sorted(itertools.chain(*first)) == ids == sorted(itertools.chain(*second))
        assert first != second
        assert [len(step) for step in first] == [4, 4, 4, 4, 4, 1]


def test_with_pools_only_supervised_steps_are_planned():
    problems = [problem(f"p{i:02}", "easy", "x") for i in range(21)]
    sizes = [4] * 5 + [1]

    def planned(order):
        ids = [p.id for p in order_problems(problems, order, 0)]
        return plan_epoch(ids, sizes, 0, seed=0, order=order, supervised=4)

    assert planned("pools") == [*planned("shuffled")[:4], [], []]


def test_supervised_steps_repeat_imitable_problems_and_the_others_take_unseen_ones():
    ids = [f"p{i:02}" for i in range(20)]
    known_good = {"p03", "p07", "p11", "p15", "p19", "p02"}
    steps = plan_epoch(
        ids, [4] * 5, 0, seed=0, order="shuffled", supervised=3, imitable=known_good
    )
    assert Counter(itertools.chain(*steps[:3])) == dict.fromkeys(known_good, 2)
    last = list(itertools.chain(*steps[3:]))
    assert len(last) == len(set(last)) == 8
    assert not known_good & set(last)
    # A step has no problem twice.
    assert plan_epoch(ids, [4, 4], 0, seed=0, order="shuffled", supervised=1, imitable={"p03"})[
        0
    ] == ["p03"]
    everything = plan_epoch(ids, [4] * 5, 0, seed=0, order="shuffled", supervised=3)
    assert everything == plan_epoch(
        ids, [4] * 5, 0, seed=0, order="shuffled", supervised=3, imitable=set(ids)
    )
    assert everything == plan_epoch(ids, [4] * 5, 0, seed=0, order="shuffled")


def test_easy_to_hard_keeps_the_slope():
    ids = [f"p{i:03}" for i in range(64)]
    steps = plan_epoch(ids, [4] * 16, 0, seed=3, order="easy_to_hard")
    assert max(steps[0]) < min(steps[8])


def test_rates_measured_before_the_run_outrank_labels():
    problems = [
        problem(name, label, "x")
        for name, label in zip("abcd", ("easy", "hard", "medium", "easy"), strict=True)
    ]
    measured = {
        "a": MeasuredRates(student=0.0, teacher=0.25),
        "b": MeasuredRates(student=0.75, teacher=0.5),
        "c": MeasuredRates(student=0.0, teacher=1.0),
        "d": MeasuredRates(student=0.75, teacher=0.5),
    }
    assert [p.id for p in order_problems(problems, "easy_to_hard", 0, measured)] == [
        "d",
        "b",
        "c",
        "a",
    ]


def test_the_first_pool_follows_the_measured_rate_or_the_label():
    labels = [
        first_pool(problem("a", label, "x"), UNMEASURED, PoolRules())
        for label in ("easy", "medium", "hard")
    ]
    assert labels == ["easy", "normal", "hard"]
    rates = [
        first_pool(problem("a", "easy", "x"), MeasuredRates(student=r), PoolRules())
        for r in (0.0, 0.5, 1.0)
    ]
    assert rates == ["hard", "normal", "easy"]


def test_each_place_of_a_step_has_its_own_replacements():
    ids = [f"p{i:02}" for i in range(9)]
    candidates = replacement_candidates(ids, ids[:3], step=4, seed=0)
    assert sorted(candidates) == ids[3:]
    assert candidates == replacement_candidates(ids[::-1], ids[:3], step=4, seed=0)
    assert candidates != replacement_candidates(ids, ids[:3], step=5, seed=0)
    got = [replacement(candidates, slot, 3, attempt) for attempt in (1, 2) for slot in range(3)]
    assert got == candidates
    assert replacement(candidates, 0, 3, 3) is None
