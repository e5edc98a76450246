"""A run with a backend that is not a client of a Tinker service uses the same flow and leaves the same history."""

import asyncio
from typing import Any

import pytest

from rtl_core.history.store import History
from tests.flows.conftest import QUICK

pytestmark = [pytest.mark.usefixtures("prefect"), pytest.mark.slow]

BACKENDS = {"over-http": "tinker", "in-process": "tests.backend.inprocess:BACKEND"}
SMALL = (*QUICK, "tinker.local_deterministic=true", "learning.kl_weight=0.1")


def rows(history: History, run: str, sql: str) -> list[dict[str, Any]]:
    return history.query(sql, [run]).to_pylist()


def filled(history: History, run: str) -> dict[str, int]:
    """Mapping of table to number of a run's rows, if any; validations are shared by the runs and left out."""
    tables = "SELECT table_name AS name FROM information_schema.columns WHERE column_name = 'run' AND table_schema = 'main'"
    names = [row["name"] for row in history.query(f"{tables} ORDER BY ALL").to_pylist()]
    counts = {
        name: rows(history, run, f'SELECT count(*) AS n FROM "{name}" WHERE run = ?')[0]["n"]
        for name in names
    }
    return {name: n for name, n in counts.items() if n and name != "validations"}


def test_two_steps_in_process_leave_the_same_history_as_over_http(small_run, tmp_path):
    from rtl_distill.flows.train import train

    history = History(tmp_path / "history.duckdb")
    for run, backend in BACKENDS.items():
        asyncio.run(train("demo", small_run(run, *SMALL, f"backend.name={backend}")))
        record = history.run(run)
        assert record is not None
        assert record.status == "finished"
    assert filled(history, "in-process") == filled(history, "over-http")
    # The first step samples from the same weights with the same seeds, and trains on the same answers.
    first = "SELECT problem_id, sample, text, n_tokens, stop_reason FROM rollouts WHERE run = ? AND step = 0 AND purpose = 'train' ORDER BY ALL"
    assert rows(history, "in-process", first) == rows(history, "over-http", first)
    one, other = (history.trained_steps(run)[0] for run in BACKENDS)
    assert (one.examples, one.train_tokens) == (other.examples, other.train_tokens)
    names = "SELECT DISTINCT name FROM step_metrics WHERE run = ? ORDER BY ALL"
    assert rows(history, "in-process", names) == rows(history, "over-http", names)
    for name in ("service/loss:sum", "optim/entropy", "teacher_kl"):
        value = f"SELECT value FROM step_metrics WHERE run = ? AND step = 0 AND name = '{name}'"
        found, expected = (
            rows(history, run, value)[0]["value"] for run in ("in-process", "over-http")
        )
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-3), name
