"""Curriculum: the order in which training problems are seen.

`easy_to_hard` sorts by label, then by the size of the known-good answer and of the interface: the signs of difficulty
that exist before anything was sampled. Every epoch shuffles within windows of one step, so that a step is of one
difficulty but no two epochs are alike. `shuffled` ignores difficulty. Both depend on the seed alone.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal

from rtl_core.problems.problem import Problem

Order = Literal["easy_to_hard", "shuffled"]

_LABEL_RANK = {"easy": 0, "medium": 1, "hard": 2}


def difficulty_key(problem: Problem) -> tuple[int, int, int, str]:
    """Sort key: difficulty label, characters of the golden answer, number of ports, id."""
    golden_chars = sum(map(len, problem.golden.values())) if problem.golden else 0
    ports = len(problem.interface.ports) if problem.interface else 0
    return (_LABEL_RANK[problem.difficulty], golden_chars, ports, problem.id)


def order_problems(problems: Sequence[Problem], order: Order, seed: int) -> list[Problem]:
    """The problems of a run in curriculum order."""
    ranked = sorted(problems, key=difficulty_key)
    if order == "shuffled":
        random.Random(f"order/{seed}").shuffle(ranked)
    return ranked


def plan_epoch(ordered: Sequence[str], problems_per_step: int, epoch: int, seed: int, order: Order) -> list[list[str]]:
    """Problem ids of each step of one epoch; each problem once, the last step may be shorter.

    With `easy_to_hard`, windows of four steps' worth of neighbouring problems are shuffled, which keeps steps varied and
    the epoch's slope.
    """
    rng = random.Random(f"epoch/{seed}/{epoch}")
    ids = list(ordered)
    window = len(ids) if order == "shuffled" else 4 * problems_per_step
    for start in range(0, len(ids), max(window, 1)):
        part = ids[start : start + window]
        rng.shuffle(part)
        ids[start : start + window] = part
    return [ids[start : start + problems_per_step] for start in range(0, len(ids), problems_per_step)]
