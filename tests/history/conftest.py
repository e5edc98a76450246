"""A synthetic run that the reading tests share."""

import pytest

from rtl_core.history.store import History
from tests import synthetic


@pytest.fixture(scope="session")
def demo(tmp_path_factory):
    """A history with the run `demo`; tests must not write to it."""
    return synthetic.write_run(tmp_path_factory.mktemp("history") / "h.duckdb")


@pytest.fixture
def history(tmp_path):
    """A history of the test's own, in `h.duckdb`."""
    return History(tmp_path / "h.duckdb")
