"""One executor and one grader for the room."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rtl_core.grading.executors import make_executor
from rtl_core.grading.grader import Grader


@pytest.fixture(scope="session")
def grader() -> Iterator[Grader]:
    with make_executor("bubblewrap") as executor:
        made = Grader(executor)
        yield made
        made.close()
