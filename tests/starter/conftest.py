"""A grader with another seed."""

from contextlib import closing

import pytest

from rtl_grader.grading.grader import Grader


@pytest.fixture(scope="session")
def other_seed(executor):
    """A grader whose harnesses draw other random vectors."""
    with closing(Grader(executor, seed=1)) as grader:
        yield grader
