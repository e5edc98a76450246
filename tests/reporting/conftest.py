"""Synthetic runs for the reporting tests, written through the public History."""

import pytest

from rtl_core.history.records import RunRecord
from rtl_core.history.store import History
from rtl_core.reporting.report import write_report
from tests import synthetic


@pytest.fixture(scope="session")
def demo(tmp_path_factory):
    """A history with the runs `demo`, `other`, and `fresh`, which has only started."""
    path = tmp_path_factory.mktemp("reporting") / "h.duckdb"
    synthetic.write_run(path, "demo")
    synthetic.write_run(path, "other", synthetic.Shape(steps=8), seed=5, gain=0.2)
    history = History(path)
    history.start_run(RunRecord(name="fresh", status="running", student="tiny-student"))
    return history


@pytest.fixture(scope="session")
def path(demo, tmp_path_factory):
    """The report of the run `demo`."""
    return write_report(demo, ["demo"], tmp_path_factory.mktemp("page") / "report.html")
