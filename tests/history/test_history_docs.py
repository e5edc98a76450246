"""docs/history.md is true: every query in it runs and answers, and every table and view is listed."""

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


def test_there_are_ten_queries_and_each_has_its_question():
    assert len(QUERIES) == 10
    assert [str(n) for n in range(1, 11)] == TITLES


@pytest.mark.parametrize("number", range(10))
def test_each_query_answers(history, number):
    sql = QUERIES[number]
    found = history.query(sql, {"run": "demo"} if "$run" in sql else None)
    assert found.num_rows > 0
    assert all(any(value is not None for value in column.to_pylist()) for column in found.columns), found.column_names


def test_a_few_answers_are_those_of_the_rollouts(history):
    def ask(number):
        sql = QUERIES[number - 1]
        return history.query(sql, {"run": "demo"} if "$run" in sql else None).to_pylist()

    stored = [s for step in range(12) for s in history.rollouts_of("demo", step)]
    assert sum(r["answers"] for r in ask(7)) == len(stored)
    for row in ask(5):
        mine = [s for s in stored if s.rollout.epoch == row["epoch"]]
        assert row["reward_now"] == pytest.approx(sum(s.verdict.passed for s in mine) / len(mine))
        assert row["reward_was"] == pytest.approx(sum(s.reward.total for s in mine) / len(mine))
    after = history.evaluation("demo-student-12")
    assert next(r["pass_at_4"] for r in ask(2) if (r["policy"], r["step"]) == ("student", 12)) == pytest.approx(
        after.pass_at_k[4]
    )
    worst = ask(6)[0]
    s = history.rollout(worst["rollout"])
    assert worst["k1"] == pytest.approx(
        s.rollout.logprobs_T[worst["position"] - 1] - s.teacher.logprobs_T[worst["position"] - 1], abs=1e-5
    )
    assert worst["token"] == s.rollout.tokens_T[worst["position"] - 1]


def test_every_table_and_view_is_listed():
    with duckdb.connect(":memory:") as con:
        schema.create(con)
        found = {name for (name,) in con.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
        found |= {name for (name,) in con.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()}
    listed = {name for row in re.findall(r"^\| (`.*?) \|", TEXT, re.M) for name in re.findall(r"`(\w+)`", row)}
    assert found == listed
