"""A second grader."""

import pytest

from rtl_core.grading.grader import Grader


@pytest.fixture(scope="session")
def other_seed(executor):
    """A grader whose harnesses draw other random vectors."""
    made = Grader(executor, seed=1)
    yield made
    made.close()
