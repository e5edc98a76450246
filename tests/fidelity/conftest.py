"""CVDP's published single-turn problems, the answers to them that lie in `goldens`, and a real sandbox."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks.answers import answer_to
from rtl_core.grading.executors import make_executor
from rtl_core.grading.grader import Grader
from rtl_core.grading.limits import Limits
from rtl_core.problems.cvdp import read_cvdp
from rtl_core.types.answer import Answer
from rtl_core.types.problem import Problem
from rtl_core.types.verdict import Verdict

GOLDENS = Path(__file__).parent / "goldens"


def golden_of(problem: Problem) -> Answer:
    return answer_to(problem, GOLDENS)


@pytest.fixture(scope="session")
def single(data) -> dict[str, Problem]:
    """Problem id -> problem, of the published single-turn problems."""
    return {problem.id: problem for problem in read_cvdp(data / "cvdp-single" / "problems.jsonl").problems}


@pytest.fixture(scope="session")
def grader() -> Iterator[Grader]:
    with make_executor("bubblewrap") as executor:
        # The public runner's own time: a busy machine is no verdict.
        made = Grader(executor, limits=Limits(wall_s=600, cpu_s=600))
        yield made
        made.close()


@pytest.fixture(scope="session")
def verdict_of(request, single, grader) -> Iterator[Callable[[str], Verdict]]:
    """The verdict on a problem's golden answer; those of all selected tests are graded on all cores from the first call."""
    selected = [item.callspec.params.get("golden") for item in request.session.items if hasattr(item, "callspec")]
    with ThreadPoolExecutor(os.cpu_count()) as pool:

        def submit(name: str) -> Future[Verdict]:
            return pool.submit(grader.grade, single[name], golden_of(single[name]))

        jobs = {name: submit(name) for name in selected if name in single}
        yield lambda name: jobs[name].result()
