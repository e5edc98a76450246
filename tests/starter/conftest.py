"""One real executor and two graders over it."""

import pytest

from rtl_core.grading.executors import make_executor
from rtl_core.grading.grader import Grader


@pytest.fixture(scope="session")
def executor():
    with make_executor("bubblewrap") as started:
        yield started


@pytest.fixture(scope="session")
def grader(executor):
    made = Grader(executor)
    yield made
    made.close()


@pytest.fixture(scope="session")
def other_seed(executor):
    """A grader whose harnesses draw other random vectors."""
    made = Grader(executor, seed=1)
    yield made
    made.close()
