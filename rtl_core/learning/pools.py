"""Pools: problems move between easy, normal and hard by their measured pass rate, and a step draws from the
pools by weight.

- A problem's rate is that of its last `window` groups. It is easy from `easy_from` on, hard below
  `hard_below`, else normal. Before its first group, its label or a measurement before the run decides.
- A problem whose last `rest_after` groups all passed completely, or all failed completely, teaches nothing:
  it rests for `rest_steps` steps after the last of them. A problem whose answers could not be graded
  (quarantined) rests immediately.
- A step draws a pool by weight, and within it the problem that was unseen for longest; ties are broken at random.

Nothing here keeps state: pools follow from the groups in the history, so that a resumed run draws the same
    problems as an uninterrupted one.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import NonNegativeInt, field_validator

from rtl_core.types.numbers import Count, Share
from rtl_grader.types.section import Section

Pool = Literal["easy", "normal", "hard"]
POOLS: tuple[Pool, ...] = ("easy", "normal", "hard")
WEIGHTS: dict[Pool, float] = {"easy": 1.0, "normal": 2.0, "hard": 1.0}


@dataclass(frozen=True, slots=True)
class GroupResult:
    """Result of one group: `passed` of `graded` answers; `graded` is 0 if the problem was quarantined."""

    step: int
    problem_id: str
    passed: int
    graded: int


class PoolRules(Section):
    """Settings of the pools, a part of the configuration section `[curriculum]`."""

    pool_weights: dict[Pool, float] = WEIGHTS
    """With `pools`: relative probability of each pool."""
    easy_from: Share = 0.75
    """With `pools`: a problem at or above this pass rate is easy."""
    hard_below: Share = 0.25
    """With `pools`: a problem below this pass rate is hard."""
    window: Count = 2
    """With `pools`: number of a problem's latest groups that its pass rate is computed from."""
    rest_after: NonNegativeInt = 2
    """With `pools`: a problem pauses after this many consecutive groups that all passed or all failed. 0: never."""
    rest_steps: Count = 20
    """With `pools`: number of steps for which such a problem pauses."""

    @field_validator("pool_weights")
    @classmethod
    def _some_weight(cls, weights: dict[Pool, float]) -> dict[Pool, float]:
        if any(weight < 0 for weight in weights.values()) or not any(weights.values()):
            raise ValueError(
                "pool weights must not be negative, and at least one must be above 0"
            )
        return {pool: weights.get(pool, 0.0) for pool in POOLS}


@dataclass(frozen=True, slots=True)
class Standing:
    """State of a problem: its pool, the step of its last group (−1: never seen), and the first step that
    may draw it."""

    pool: Pool
    last_step: int = -1
    rests_until: int = 0


def pool_of(rate: float, rules: PoolRules) -> Pool:
    if rate >= rules.easy_from:
        return "easy"
    return "hard" if rate < rules.hard_below else "normal"


def standings(
    start: Mapping[str, Pool], results: Iterable[GroupResult], rules: PoolRules
) -> dict[str, Standing]:
    """State of each problem after the groups so far; `start` maps all problems to their first pool."""
    groups: dict[str, list[GroupResult]] = defaultdict(list)
    for result in sorted(results, key=lambda result: result.step):
        groups[result.problem_id].append(result)
    return {
        problem: _standing(first, groups.get(problem, ()), rules)
        for problem, first in start.items()
    }


def _standing(first: Pool, groups: Sequence[GroupResult], rules: PoolRules) -> Standing:
    if not groups:
        return Standing(first)
    last = groups[-1].step
    graded = [group for group in groups if group.graded]
    pool = first
    if recent := graded[-rules.window :]:
        passes, answers = sum(g.passed for g in recent), sum(g.graded for g in recent)
        pool = pool_of(passes / answers, rules)
    latest = graded[-rules.rest_after :] if rules.rest_after else []
    rates = {g.passed / g.graded for g in latest}
    uniform = len(latest) == rules.rest_after > 0 and rates in ({0.0}, {1.0})
    rests = uniform or not groups[-1].graded
    return Standing(pool, last, last + 1 + rules.rest_steps if rests else 0)


def draw(
    now: Mapping[str, Standing],
    step: int,
    count: int,
    rng: random.Random,
    weights: Mapping[Pool, float],
) -> list[str]:
    """Draw the problems of a step: `count` different ones, or all.

    Pools without weight are used only when the others are empty, and resting problems only when no other is
    left, the one that is due first coming first.
    """
    awake: dict[Pool, list[str]] = {pool: [] for pool in POOLS}
    for problem, standing in sorted(now.items()):
        if standing.rests_until <= step:
            awake[standing.pool].append(problem)
    for problems in awake.values():
        rng.shuffle(problems)
        problems.sort(
            key=lambda problem: -now[problem].last_step
        )  # the last one is drawn first
    due = sorted((standing.rests_until, problem) for problem, standing in now.items())
    resting = [problem for step_due, problem in due if step_due > step]
    step_problems: list[str] = []
    while len(step_problems) < count and (full := [pool for pool in POOLS if awake[pool]]):
        chances = [weights.get(pool, 0.0) for pool in full]
        (pool,) = rng.choices(full, chances) if any(chances) else rng.choices(full)
        step_problems.append(awake[pool].pop())
    return step_problems + resting[: count - len(step_problems)]
