"""docs/history-notebook.ipynb runs on a snapshot, and its figures show the run's data."""

import json
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest

from rtl_core.history.export import take_snapshot

NOTEBOOK = Path(__file__).parents[2] / "docs" / "history-notebook.ipynb"


@pytest.fixture
def figures(demo, tmp_path, monkeypatch):
    """The figures by name, after all code cells have run in order."""
    monkeypatch.setenv("SNAPSHOT", str(take_snapshot(demo.path, tmp_path / "today.duckdb")))
    monkeypatch.delenv("RUN", raising=False)
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    names: dict[str, Any] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            exec("".join(cell["source"]), names)
    names["history"].close()
    return {name: value for name, value in names.items() if isinstance(value, go.Figure)}


def test_every_figure_of_the_notebook_shows_the_runs_data(demo, figures):
    assert set(figures) == {"curves", "heldout", "shares", "stages", "named", "parting", "spent"}
    for name, figure in figures.items():
        assert figure.data, name
        assert all(len(trace.x) == len(trace.y) > 0 for trace in figure.data), name
    (rate,) = [trace for trace in figures["curves"].data if trace.name == "pass rate"]
    right = demo.query("SELECT step, pass_rate FROM pass_by_step WHERE run = 'demo' ORDER BY step").to_pydict()
    assert (list(rate.x), list(rate.y)) == (right["step"], right["pass_rate"])
    (student,) = [trace for trace in figures["heldout"].data if trace.name == "student"]
    before, after = demo.evaluation("demo-student-0"), demo.evaluation("demo-student-12")
    assert list(student.y) == [before.pass_at_1, after.pass_at_1]
    assert student.y[1] + student.error_y.array[1] == pytest.approx(after.hi)
    first = sum(y for trace in figures["shares"].data for x, y in zip(trace.x, trace.y, strict=True) if x == 1)
    assert first == pytest.approx(1)
