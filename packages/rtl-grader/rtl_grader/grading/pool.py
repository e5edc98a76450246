"""The threads of a grader: several answers are graded at a time, and equal ones once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from attrs import define, field

from rtl_grader.grading.grader import Grader
from rtl_grader.types.answer import Answer
from rtl_grader.types.problem import Problem
from rtl_grader.types.verdict import Stage, Verdict

_T = TypeVar("_T")


@define(eq=False)
class GraderPool:
    """A grader with its threads. Several event loops may use it."""

    grader: Grader
    threads: int = field(default=0, converter=lambda threads: threads or os.cpu_count() or 1)
    """Number of answers graded concurrently; 0 means one per core."""
    _pool: ThreadPoolExecutor = field(init=False)
    _in_flight: dict[object, asyncio.Future[Verdict]] = field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="grade")

    def call(self, function: Callable[..., _T], *arguments: Any) -> asyncio.Future[_T]:
        """Run a function in one of the threads."""
        return asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)

    async def grade(
        self, problem: Problem, answers: Sequence[Answer], until: Stage | None = None
    ) -> list[Verdict]:
        """Return verdicts on answers to one problem, in order. Equal answers are graded once, also those of
        concurrent calls; repeats are marked `cached`.

        `until` is the last stage to grade (default: the grader's own). Never raises, like `Grader.grade`.
        """
        return await asyncio.gather(
            *(self._verdict(problem, answer, until) for answer in answers)
        )

    async def _verdict(self, problem: Problem, answer: Answer, until: Stage | None) -> Verdict:
        # The text is no JSON: an answer may contain unpaired surrogates. A future belongs to one event loop.
        key = asyncio.get_running_loop(), id(problem), repr(answer), until
        while earlier := self._in_flight.get(key):
            await asyncio.wait([earlier])
            if not earlier.cancelled():  # else its caller no longer wants it
                return earlier.result().model_copy(update={"cached": True, "wall_s": 0.0})
        grading = self._in_flight[key] = self.call(self.grader.grade, problem, answer, until)
        grading.add_done_callback(lambda _: self._in_flight.pop(key))
        return await grading

    def close(self) -> None:
        """Close the grader and its executor, which ends the simulations that the threads wait for; then end
        the threads."""
        self.grader.close()
        self.grader.executor.close()
        self._pool.shutdown(cancel_futures=True)
