"""Pools: problems move between easy, normal and hard with their measured pass rate, and a step draws from them by weight.

- A problem's rate is that of its last `window` groups. From `easy_from` on it is easy, below `hard_below` hard, else normal; before
  its first group it stands where its label, or what was measured before the run, puts it.
- A problem whose last `rest_after` groups were all solved in full, or all not at all, teaches nothing: it rests for `rest_steps` steps
  after the last of them, and is then drawn again. One whose answers could not be graded (quarantined) rests at once.
- A step draws each problem's pool by weight, and within the pool the problem that was longest not seen; ties by chance.

Nothing here keeps state: where every problem stands follows from the groups that the history holds, so that a resumed run draws what
an undisturbed one would have drawn.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Pool = Literal["easy", "normal", "hard"]
POOLS: tuple[Pool, ...] = ("easy", "normal", "hard")
DEFAULT_WEIGHTS: Mapping[Pool, float] = {"easy": 1.0, "normal": 2.0, "hard": 1.0}


@dataclass(frozen=True, slots=True)
class GroupResult:
    """How one group went: `passed` of `graded` answers; none graded means that the problem was quarantined."""

    step: int
    problem_id: str
    passed: int
    graded: int


@dataclass(frozen=True)
class PoolRules:
    """See the module. Rates are shares of answers that passed; `rest_after` 0 lets nothing rest but the quarantined."""

    weights: Mapping[Pool, float] = field(default_factory=lambda: DEFAULT_WEIGHTS)
    easy_from: float = 0.75
    hard_below: float = 0.25
    window: int = 2
    rest_after: int = 2
    rest_steps: int = 20


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a problem stands: its pool, its last group's step (−1: never seen), and the first step that may draw it."""

    pool: Pool
    last_step: int = -1
    rests_until: int = 0


def pool_of(rate: float, rules: PoolRules) -> Pool:
    """The pool of a pass rate."""
    return "easy" if rate >= rules.easy_from else "hard" if rate < rules.hard_below else "normal"


def standings(start: Mapping[str, Pool], results: Iterable[GroupResult], rules: PoolRules) -> dict[str, Standing]:
    """Where each problem stands after the groups so far; `start` names all problems and their first pool."""
    groups: dict[str, list[GroupResult]] = defaultdict(list)
    for result in sorted(results, key=lambda result: result.step):
        groups[result.problem_id].append(result)
    return {problem: _standing(first, groups.get(problem, ()), rules) for problem, first in start.items()}


def _standing(first: Pool, groups: Sequence[GroupResult], rules: PoolRules) -> Standing:
    if not groups:
        return Standing(first)
    last = groups[-1].step
    graded = [group for group in groups if group.graded]
    recent = graded[-rules.window :]
    pool = pool_of(sum(g.passed for g in recent) / sum(g.graded for g in recent), rules) if recent else first
    latest = graded[-rules.rest_after :] if rules.rest_after else []
    uniform = len(latest) == rules.rest_after > 0 and (
        all(g.passed == g.graded for g in latest) or all(g.passed == 0 for g in latest)
    )
    rests = uniform or not groups[-1].graded
    return Standing(pool, last, last + 1 + rules.rest_steps if rests else 0)


def draw(
    now: Mapping[str, Standing], step: int, count: int, rng: random.Random, weights: Mapping[Pool, float]
) -> list[str]:
    """The problems of a step, `count` different ones or all there are.

    Pools without weight are drawn from only when the others are empty, and resting problems only when everybody rests: those
    first that are due first.
    """
    awake: dict[Pool, list[str]] = {pool: [] for pool in POOLS}
    resting = []
    for problem, standing in sorted(now.items()):
        if standing.rests_until <= step:
            awake[standing.pool].append(problem)
        else:
            resting.append(problem)
    for problems in awake.values():
        rng.shuffle(problems)
        problems.sort(key=lambda problem: -now[problem].last_step)  # the last one is drawn first
    resting.sort(key=lambda problem: (now[problem].rests_until, problem))
    drawn: list[str] = []
    while len(drawn) < count and (full := [pool for pool in POOLS if awake[pool]]):
        chances = [weights.get(pool, 0.0) for pool in full]
        (pool,) = rng.choices(full, chances) if any(chances) else rng.choices(full)
        drawn.append(awake[pool].pop())
    return drawn + resting[: count - len(drawn)]
