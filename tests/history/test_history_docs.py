"""docs/history.md is correct (queries return rows, all tables and views are listed), and docs/history-notebook.ipynb runs on a snapshot."""

import json
import re
from pathlib import Path

import duckdb
import plotly.graph_objects as go
import pytest

from rtl_core.history import schema
from rtl_core.history.export import take_snapshot
from rtl_grader.types.verdict import Outcome
from tests import synthetic

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "history.md").read_text(encoding="utf-8")
QUERIES = re.findall(r"```sql\n(.*?)```", TEXT, re.S)
TITLES = re.findall(r"^\*\*(\d+)\. ", TEXT, re.M)


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    history = synthetic.write_run(tmp_path_factory.mktemp("docs") / "h.duckdb")
    rows = [(s.rollout.key, s.verdict) for s in history.rollouts_of("demo", 3)]
    history.record_regrades(
        "later", [(k, v.model_copy(update={"outcome": Outcome.TIMEOUT})) for k, v in rows]
    )
    return history


def test_there_are_four_queries_with_a_question_each():
    assert len(QUERIES) == 4
    assert list("1234") == TITLES


def ask(history, number):
    sql = QUERIES[number - 1]
    return history.query(sql, {"run": "demo"} if "$run" in sql else None).to_pylist()


@pytest.mark.parametrize("number", range(1, 5))
def test_each_query_returns_values_in_every_column(history, number):
    rows = ask(history, number)
    assert rows
    assert all(any(row[column] is not None for row in rows) for column in rows[0]), list(
        rows[0]
    )


def test_some_results_agree_with_the_rollouts(history):
    stored = [s for step in range(12) for s in history.rollouts_of("demo", step)]
    assert sum(r["answers"] for r in ask(history, 3)) == len(stored)
    for row in ask(history, 1):
        mine = [s for s in stored if s.rollout.epoch == row["epoch"]]
        assert row["reward_now"] == pytest.approx(
            sum(s.verdict.passed for s in mine) / len(mine)
        )
        assert row["reward_was"] == pytest.approx(sum(s.reward.total for s in mine) / len(mine))
    worst = ask(history, 2)[0]
    s, at = history.rollout(worst["rollout"]), worst["position"] - 1
    assert worst["k1"] == pytest.approx(
        s.rollout.logprobs_T[at] - s.teacher.logprobs_T[at], abs=1e-5
    )
    assert worst["token"] == s.rollout.tokens_T[at]


def test_every_table_and_view_is_listed():
    with duckdb.connect(":memory:") as con:
        schema.create(con)
        sql = "SELECT table_name FROM duckdb_tables() UNION SELECT view_name FROM duckdb_views() WHERE NOT internal"
        found = {name for (name,) in con.execute(sql).fetchall()}
    listed = {
        name
        for row in re.findall(r"^\| (`.*?) \|", TEXT, re.M)
        for name in re.findall(r"`(\w+)`", row)
    }
    assert found == listed


@pytest.fixture
def figures(demo, tmp_path, monkeypatch):
    """The figures by name, after all code cells have run in order."""
    monkeypatch.setenv("SNAPSHOT", str(take_snapshot(demo.path, tmp_path / "today.duckdb")))
    monkeypatch.delenv("RUN", raising=False)
    notebook = json.loads((DOCS / "history-notebook.ipynb").read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    names = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            exec("".join(cell["source"]), names)
    names["history"].close()
    return {name: value for name, value in names.items() if isinstance(value, go.Figure)}


def test_every_figure_of_the_notebook_shows_the_runs_data(demo, figures):
    assert set(figures) == {
        "curves",
        "heldout",
        "shares",
        "stages",
        "named",
        "parting",
        "spent",
    }
    for name, figure in figures.items():
        assert figure.data, name
        assert all(len(trace.x) == len(trace.y) > 0 for trace in figure.data), name
    (rate,) = [trace for trace in figures["curves"].data if trace.name == "pass rate"]
    right = demo.query(
        "SELECT step, pass_rate FROM pass_by_step WHERE run = 'demo' ORDER BY step"
    ).to_pydict()
    assert (list(rate.x), list(rate.y)) == (right["step"], right["pass_rate"])
    (student,) = [trace for trace in figures["heldout"].data if trace.name == "student"]
    before, after = demo.evaluation("demo-student-0"), demo.evaluation("demo-student-12")
    assert list(student.y) == [before.pass_at_1, after.pass_at_1]
    assert student.y[1] + student.error_y.array[1] == pytest.approx(after.hi)
    first = sum(
        y
        for trace in figures["shares"].data
        for x, y in zip(trace.x, trace.y, strict=True)
        if x == 1
    )
    assert first == pytest.approx(1)
