"""CVDP's published single-turn problems, their answers in `goldens`, and a real sandbox."""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.answers import answer_to
from rtl_grader.grading.executors import make_executor
from rtl_grader.grading.grader import Grader
from rtl_grader.grading.limits import Limits
from rtl_grader.problems.cvdp import read_cvdp

GOLDENS = Path(__file__).parent / "goldens"


def golden_of(problem):
    return answer_to(problem, GOLDENS)


@pytest.fixture(scope="session")
def single(data):
    """Problem id -> published single-turn problem."""
    return {
        problem.id: problem
        for problem in read_cvdp(data / "cvdp-single" / "problems.jsonl").problems
    }


@pytest.fixture(scope="session")
def grader():
    # The public runner's limits, so that a busy machine changes no verdict.
    limits = Limits(wall_s=600, cpu_s=600)
    with (
        make_executor("bubblewrap") as executor,
        closing(Grader(executor, limits=limits)) as made,
    ):
        yield made


@pytest.fixture(scope="session")
def verdict_of(request, single, grader):
    """A function from problem id to the verdict on its golden answer; all selected ones are graded in parallel."""
    selected = [
        item.callspec.params.get("golden")
        for item in request.session.items
        if hasattr(item, "callspec")
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        names = [name for name in selected if name in single]
        jobs = {
            name: pool.submit(grader.grade, single[name], golden_of(single[name]))
            for name in names
        }
        yield lambda name: jobs[name].result()
