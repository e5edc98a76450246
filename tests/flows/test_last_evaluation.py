"""A run without its last evaluation is not finished, and the same command makes up for it."""

import asyncio

import pytest

from rtl_core.errors import PolicyError
from rtl_core.history.store import History
from tests.flows import failing_backend
from tests.flows.conftest import QUICK

pytestmark = pytest.mark.usefixtures("prefect")


@pytest.mark.slow
def test_a_run_whose_last_evaluation_fails_is_not_finished(small_run, tmp_path, monkeypatch):
    from rtl_distill.flows.train import train

    overrides = small_run("short", "backend.name=tests.flows.failing_backend:BACKEND", *QUICK)
    monkeypatch.setattr(failing_backend, "REFUSED", ["000002"])
    monkeypatch.setattr(failing_backend, "KEPT", kept := [])
    with pytest.raises(PolicyError, match="refuses these weights"):
        asyncio.run(train("demo", overrides))
    history = History(tmp_path / "history.duckdb")
    assert history.run("short").status == "failed"
    assert [state.status for state in history.steps("short")] == ["trained"] * 2
    assert history.steps("short")[-1].state_path in kept

    monkeypatch.setattr(failing_backend, "REFUSED", [])
    asyncio.run(train("demo", overrides))
    assert history.run("short").status == "finished"
    assert [(e.step, e.status) for e in history.evaluations("short")] == [
        (0, "done"),
        (2, "done"),
    ]
