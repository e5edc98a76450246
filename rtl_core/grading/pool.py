"""Grades several answers to one problem side by side, on the threads of a pool."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from rtl_core.grading.grader import Grader
from rtl_core.types.answer import Answer
from rtl_core.types.problem import Problem
from rtl_core.types.verdict import Stage, Verdict


async def grade_all(
    grader: Grader, pool: ThreadPoolExecutor, problem: Problem, answers: Sequence[Answer], until: Stage | None = None
) -> list[Verdict]:
    """Verdicts on answers to one problem, in order. Equal answers are graded once; the verdicts of all but the first are `cached`.

    `until` is the last stage that is graded (None: the grader's own). Does not raise: a failure of grading is a verdict, too.
    """
    names = [repr(answer) for answer in answers]
    distinct = dict(zip(names, answers, strict=True))
    loop = asyncio.get_running_loop()
    gradings = (loop.run_in_executor(pool, grader.grade, problem, answer, until) for answer in distinct.values())
    by_name = dict(zip(distinct, await asyncio.gather(*gradings), strict=True))
    verdicts = []
    for name in names:
        verdicts.append(by_name[name])
        by_name[name] = by_name[name].model_copy(update={"cached": True, "wall_s": 0.0})
    return verdicts
