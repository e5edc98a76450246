"""docs/history.md is correct: every query in it returns rows, and every table and view is listed."""

import re
from pathlib import Path

import duckdb
import pytest

from rtl_core.history import schema
from rtl_core.types.verdict import Outcome
from tests import synthetic

TEXT = (Path(__file__).parents[2] / "docs" / "history.md").read_text(encoding="utf-8")
QUERIES = re.findall(r"```sql\n(.*?)```", TEXT, re.S)
TITLES = re.findall(r"^\*\*(\d+)\. ", TEXT, re.M)


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    history = synthetic.write_run(tmp_path_factory.mktemp("docs") / "h.duckdb")
    rows = [(s.rollout.key, s.verdict) for s in history.rollouts_of("demo", 3)]
    history.record_regrades("later", [(k, v.model_copy(update={"outcome": Outcome.TIMEOUT})) for k, v in rows])
    return history


def test_there_are_ten_queries_with_a_question_each():
    assert len(QUERIES) == 10
    assert [str(n) for n in range(1, 11)] == TITLES


def ask(history, number):
    sql = QUERIES[number - 1]
    return history.query(sql, {"run": "demo"} if "$run" in sql else None).to_pylist()


@pytest.mark.parametrize("number", range(1, 11))
def test_each_query_returns_values_in_every_column(history, number):
    rows = ask(history, number)
    assert rows
    assert all(any(row[column] is not None for row in rows) for column in rows[0]), list(rows[0])


def test_some_results_agree_with_the_rollouts(history):
    stored = [s for step in range(12) for s in history.rollouts_of("demo", step)]
    assert sum(r["answers"] for r in ask(history, 7)) == len(stored)
    for row in ask(history, 5):
        mine = [s for s in stored if s.rollout.epoch == row["epoch"]]
        assert row["reward_now"] == pytest.approx(sum(s.verdict.passed for s in mine) / len(mine))
        assert row["reward_was"] == pytest.approx(sum(s.reward.total for s in mine) / len(mine))
    (after,) = (row for row in ask(history, 2) if (row["policy"], row["step"]) == ("student", 12))
    assert after["pass_at_4"] == pytest.approx(history.evaluation("demo-student-12").pass_at_k[4])
    worst = ask(history, 6)[0]
    s, at = history.rollout(worst["rollout"]), worst["position"] - 1
    assert worst["k1"] == pytest.approx(s.rollout.logprobs_T[at] - s.teacher.logprobs_T[at], abs=1e-5)
    assert worst["token"] == s.rollout.tokens_T[at]


def test_every_table_and_view_is_listed():
    with duckdb.connect(":memory:") as con:
        schema.create(con)
        sql = "SELECT table_name FROM duckdb_tables() UNION SELECT view_name FROM duckdb_views() WHERE NOT internal"
        found = {name for (name,) in con.execute(sql).fetchall()}
    listed = {name for row in re.findall(r"^\| (`.*?) \|", TEXT, re.M) for name in re.findall(r"`(\w+)`", row)}
    assert found == listed
