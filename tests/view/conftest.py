"""Synthetic runs with everything that pages show, written through the public History."""

import pytest
from fastapi.testclient import TestClient

from rtl_core.history.records import AuditRecord, RunRecord
from rtl_core.history.store import History
from rtl_core.view.server import create_app
from rtl_grader.types.verdict import Outcome
from tests import synthetic


@pytest.fixture(scope="session")
def demo(tmp_path_factory):
    """The runs `demo` (with an audit and a regrading), `other`, and `fresh`, which has only started."""
    path = tmp_path_factory.mktemp("view") / "h.duckdb"
    history = synthetic.write_run(path, "demo")
    synthetic.write_run(path, "other", synthetic.Shape(steps=3), seed=5, gain=0.2)
    history.start_run(RunRecord(name="fresh", status="running"))
    (passed,) = history.query("SELECT rollout FROM verdicts WHERE run = 'demo' AND purpose = 'train' AND outcome = 'passed' ORDER BY rollout LIMIT 1").column(0).to_pylist()  # fmt: skip
    stored = history.find_rollout(passed)
    history.record_audits([AuditRecord(rollout=passed, run="demo", problem_id=stored.rollout.problem_id, result="different", detail="result is 3, golden 4", key="k", executor="bubblewrap")])  # fmt: skip
    history.record_regrades(
        "seed 7",
        [(passed, stored.verdict.model_copy(update={"outcome": Outcome.TESTS_FAILED}))],
    )
    return history


@pytest.fixture(scope="session")
def view(demo):
    """An HTTP client for the view of that history."""
    return TestClient(
        create_app(History(demo.path, read_only=True)), base_url="http://127.0.0.1:8000"
    )
