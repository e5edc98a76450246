"""A made-up run that the reading tests share."""

from pathlib import Path

import pytest
import synthetic

from rtl_core.history.store import History


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> History:
    """A history with the one run `demo`; not to be written to."""
    return synthetic.write_run(tmp_path_factory.mktemp("history") / "h.duckdb")


@pytest.fixture
def history(tmp_path: Path) -> History:
    """A history of the test's own, in `h.duckdb`."""
    return History(tmp_path / "h.duckdb")
