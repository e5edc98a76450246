"""Equal answers in flight share one grading, whoever asks."""

import asyncio
import threading
from contextlib import closing
from types import SimpleNamespace
from typing import cast

import pytest

from rtl_grader.grading.grader import Grader
from rtl_grader.grading.pool import GraderPool
from rtl_grader.types.answer import Answer
from rtl_grader.types.problem import Problem
from rtl_grader.types.verdict import Outcome
from tests.nouns import a_verdict

PROBLEM = cast(Problem, object())
ONE, OTHER = Answer(files={"a.sv": "one"}), Answer(files={"a.sv": "other"})


@pytest.fixture
def pool():
    """A pool of one thread whose grader waits for `go` and lists what it graded."""
    go, graded = threading.Event(), []

    def grade(problem, answer, until):
        assert go.wait(60)
        graded.append(answer)
        return a_verdict(Outcome.PASSED)

    grader = SimpleNamespace(
        grade=grade, close=go.set, executor=SimpleNamespace(close=go.set), go=go, graded=graded
    )
    with closing(GraderPool(cast(Grader, grader), 1)) as pool:
        yield pool


def test_concurrent_calls_grade_an_equal_answer_once_and_mark_its_repeats(pool):
    async def go():
        calls = [
            asyncio.create_task(pool.grade(PROBLEM, answers))
            for answers in ([ONE, OTHER, ONE], [ONE])
        ]
        await asyncio.sleep(0)
        pool.grader.go.set()
        return await asyncio.gather(*calls)

    first, second = asyncio.run(go())
    assert [verdict.cached for verdict in (*first, *second)] == [False, False, True, True]
    assert pool.grader.graded == [ONE, OTHER]


def test_an_answer_whose_first_caller_leaves_is_graded_for_the_other(pool):
    async def go():
        await asyncio.wait(
            [blocking := asyncio.create_task(pool.grade(PROBLEM, [OTHER]))], timeout=0.01
        )
        calls = [asyncio.create_task(pool.grade(PROBLEM, [ONE])) for _ in range(2)]
        await asyncio.wait(calls, timeout=0.01)
        calls[0].cancel()
        await asyncio.wait(calls, timeout=0.01)
        pool.grader.go.set()
        await blocking
        return await calls[1]

    (verdict,) = asyncio.run(go())
    assert not verdict.cached
    assert pool.grader.graded == [OTHER, ONE]
