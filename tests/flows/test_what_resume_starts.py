"""Which runs the flow `resume` restarts: the history's columns decide, not the message."""

import asyncio
import json
import logging
import socket
from uuid import uuid4

import pytest
import yaml

from rtl_core.config import load_config
from rtl_core.history.records import RunRecord
from rtl_core.history.store import History
from rtl_core.run.lock import lock_path
from rtl_distill.flows.resume import resume, should_restart
from tests.places import REPOSITORY


@pytest.mark.parametrize(
    ("status", "ended_by", "starts"),
    [
        ("running", None, True),
        ("cancelled", "signal", True),
        ("cancelled", "request", False),
        ("paused", None, False),
        ("failed", None, False),
        ("finished", None, False),
    ],
)
@pytest.mark.parametrize("message", [None, "stopped by a signal", "cancelled in Prefect"])
def test_runs_that_were_killed_or_ended_by_a_signal_are_restarted(
    tmp_path, status, ended_by, starts, message
):
    config = load_config("demo", [f"run.directory={tmp_path}", "run.name=r"], environment={})
    record = RunRecord(name="r", status=status, ended_by=ended_by, message=message)
    here = {"deployment": "train/nightly", "host": socket.gethostname()}
    assert should_restart(record, config, here) is starts
    assert not should_restart(record, config, {**here, "host": "elsewhere"})
    assert not should_restart(record, config, {**here, "deployment": ""})


def test_a_worker_of_compose_keeps_its_host_name_when_its_container_is_recreated():
    services = yaml.safe_load((REPOSITORY / "deployments" / "compose.yaml").read_text())[
        "services"
    ]
    assert services["worker"]["hostname"], (
        "should_restart compares host names, and a new container has a new one"
    )


def a_dead_run(history: History, name: str, deployment: str) -> None:
    """Record a run that the deployment had started and whose lock no process holds."""
    config = load_config(
        "demo", [f"run.directory={history.path.parent}", f"run.name={name}"], environment={}
    )
    history.start_run(
        RunRecord(name=name, status="running", config=config.model_dump(mode="json"))
    )
    lock = lock_path(config)
    lock.parent.mkdir()
    holder = {
        "pid": 1,
        "host": socket.gethostname(),
        "flow_run": str(uuid4()),
        "deployment": deployment,
    }
    lock.write_text(json.dumps(holder), encoding="utf-8")


def restarted(history: History) -> list[str]:
    """Run the flow with a deployment `train/here` on the server; returns the names of the restarted runs."""
    from rtl_distill.flows.train import train

    async def work():
        await (await train.ato_deployment("here")).apply()
        return await resume(str(history.path))

    return asyncio.run(work())


@pytest.mark.usefixtures("prefect")
def test_a_run_that_cannot_be_restarted_is_reported_and_does_not_block_other_runs(
    tmp_path, caplog
):
    history = History(tmp_path / "history.duckdb")
    a_dead_run(history, "older", "train/here")
    a_dead_run(history, "newer", "train/gone")
    a_dead_run(history, "newest", "train/here")
    (tmp_path / "newest" / "lock").unlink()
    (tmp_path / "newest" / "lock").mkdir()  # cannot be read, like the file of another user
    with caplog.at_level(logging.INFO, "rtl_distill"):
        assert restarted(history) == ["older"]
    assert "the server no longer has its deployment train/gone" in caplog.text
    assert f"`rtl-distill resume newer --db {history.path}`" in caplog.text
    assert str(tmp_path / "newest" / "lock") in caplog.text
