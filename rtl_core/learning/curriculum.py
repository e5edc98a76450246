"""Curriculum: the order of training problems.

`easy_to_hard` sorts by pass rates that were measured before the run (the student's, then the teacher's,
highest first), and then by label, size of the known-good answer and size of the interface, which need no
samples. Every epoch shuffles within windows of a few steps, so that a step has one difficulty but epochs
differ. `shuffled` ignores difficulty. Both depend only on the seed. `pools` draws each step by the pass
rates of the run itself (pools.py); its supervised steps, which measure none, are planned as with
`shuffled`.
"""

from __future__ import annotations

import random
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Literal

from rtl_core.learning.pools import Pool, PoolRules, pool_of
from rtl_grader.types.problem import Problem

Order = Literal["easy_to_hard", "shuffled", "pools"]

_LABEL_RANK = {"easy": 0, "medium": 1, "hard": 2}
_LABEL_POOL: dict[str, Pool] = {"easy": "easy", "medium": "normal", "hard": "hard"}


def difficulty_key(problem: Problem) -> tuple[int, int, int, str]:
    """Sort key: (difficulty label, characters that the golden answer writes, number of ports, id)."""
    given_chars = sum(map(len, problem.frame.values()))
    golden_chars = sum(map(len, problem.golden.values())) - given_chars if problem.golden else 0
    ports = len(problem.interface.ports) if problem.interface else 0
    return (_LABEL_RANK[problem.difficulty], golden_chars, ports, problem.id)


@dataclass(frozen=True, slots=True)
class MeasuredRates:
    """Pass rates of one problem before the run, 0 to 1; None if a policy was not measured."""

    student: float | None = None
    teacher: float | None = None


UNMEASURED = MeasuredRates()


def measured_key(
    problem: Problem, rates: MeasuredRates
) -> tuple[float, float, tuple[int, int, int, str]]:
    """Sort key: (student's failure rate, teacher's failure rate, `difficulty_key`); unmeasured rates count as 0.5."""
    failures = [0.5 if rate is None else 1.0 - rate for rate in (rates.student, rates.teacher)]
    return (failures[0], failures[1], difficulty_key(problem))


def first_pool(problem: Problem, rates: MeasuredRates, rules: PoolRules) -> Pool:
    """Pool of a problem before its first group: by the student's measured pass rate, else by its label."""
    if rates.student is not None:
        return pool_of(rates.student, rules)
    return _LABEL_POOL[problem.difficulty]


def order_problems(
    problems: Sequence[Problem],
    order: Order,
    seed: int,
    measured: Mapping[str, MeasuredRates] | None = None,
) -> list[Problem]:
    """Sort the problems of a run in curriculum order; `measured` maps problem ids to rates from before the run."""
    rates = measured or {}
    ranked = sorted(
        problems, key=lambda problem: measured_key(problem, rates.get(problem.id, UNMEASURED))
    )
    if order != "easy_to_hard":
        random.Random(f"order/{seed}").shuffle(ranked)
    return ranked


def fill_places(
    planned: Sequence[str], ordered: Sequence[str], usable: Container[str]
) -> list[str]:
    """Replace each planned problem that is not `usable` by the nearest usable one in curriculum order that
    the step does not have yet. If there is none left, the place stays empty."""
    place = {problem_id: index for index, problem_id in enumerate(ordered)}
    others = [name for name in ordered if name in usable and name not in planned]
    step = []
    for problem_id in planned:
        if problem_id in usable:
            step.append(problem_id)
        elif others:
            step.append(min(others, key=lambda other: abs(place[other] - place[problem_id])))
            others.remove(step[-1])
    return step


def replacement(candidates: Sequence[str], slot: int, slots: int, attempt: int) -> str | None:
    """Replacement for a step's place `slot` (of `slots`) at attempt 1, 2, ...; None when the candidates are used up.

    Each place has its own candidates, so that its replacement does not depend on the order in which groups are graded.
    """
    index = slot + slots * (attempt - 1)
    return candidates[index] if index < len(candidates) else None


def replacement_candidates(
    problem_ids: Sequence[str], taken: Sequence[str], step: int, seed: int
) -> list[str]:
    """Return the problems of a run that a step does not train on, shuffled by seed and step."""
    others = sorted(set(problem_ids) - set(taken))
    random.Random(f"replacement/{seed}/{step}").shuffle(others)
    return others


def plan_epoch(
    ordered: Sequence[str],
    sizes: Sequence[int],
    epoch: int,
    seed: int,
    order: Order,
    supervised: int = 0,
    imitable: Container[str] | None = None,
) -> list[list[str]]:
    """Plan one epoch: the problem ids of each step, with `sizes` problems per step.

    The first `supervised` steps cycle through the problems in `imitable` (None: all), but no step has a
    problem twice. The other steps repeat no problem; with `pools` they are empty, because each is drawn
    when it begins. `easy_to_hard` shuffles windows of four steps' worth of neighbouring problems, which
    varies the steps and keeps the slope.
    """
    rng = random.Random(f"epoch/{seed}/{epoch}")
    ids = list(ordered)
    window = 4 * max(sizes, default=1) if order == "easy_to_hard" else len(ids)
    for start in range(0, len(ids), max(window, 1)):
        part = ids[start : start + window]
        rng.shuffle(part)
        ids[start : start + window] = part
    to_imitate = [
        problem_id for problem_id in ids if imitable is None or problem_id in imitable
    ]
    first, last = sizes[:supervised], sizes[supervised:]
    examples = islice(cycle(to_imitate), sum(first))
    steps = [list(dict.fromkeys(islice(examples, size))) for size in first]
    if order == "pools":
        return steps + [[] for _ in last]
    supervised_ids = set().union(*steps)
    rest = iter([problem_id for problem_id in ids if problem_id not in supervised_ids])
    return steps + [list(islice(rest, size)) for size in last]
