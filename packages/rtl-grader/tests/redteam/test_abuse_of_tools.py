"""Abuse of an episode's tools is contained and not paid. A few always run, all with `-m slow`, and in Docker with `-m docker`."""

from contextlib import closing

import pytest

from benchmarks.redteam.attack import COUNTER
from benchmarks.redteam.grading import LIMITS
from benchmarks.redteam.tools import ABUSES, play, problem
from rtl_grader.grading.executors import make_executor
from rtl_grader.grading.grader import Grader
from rtl_grader.types.answer import Answer

FAST = (
    "a process left behind", "a link out of the tree", "files for the next call", "the simulator's own files", "search for the harness",
    "/proc of others", "the network", "paths outside",
)  # fmt: skip


@pytest.fixture(
    scope="module", params=["bubblewrap", pytest.param("docker", marks=pytest.mark.docker)]
)
def sandboxes(request):
    with (
        closing(make_executor(request.param)) as executor,
        closing(make_executor(request.param)) as other,
        closing(Grader(other, limits=LIMITS)) as grader,
    ):
        yield executor, grader


@pytest.mark.parametrize(
    "abuse",
    [
        pytest.param(a, id=a.name, marks=() if a.name in FAST else pytest.mark.slow)
        for a in ABUSES
    ],
)
def test_abuse_is_contained_and_not_paid(sandboxes, abuse):
    assert play(abuse, problem(), *sandboxes) == []


def test_the_right_design_would_have_been_paid(sandboxes):
    asked = problem()
    assert (
        sandboxes[1]
        .grade(asked, Answer(files={asked.targets[0]: COUNTER.design(core="good")}))
        .passed
    )
