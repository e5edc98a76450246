"""A deployment under faults: what is triggered ends, what is killed goes on, what is cancelled is gone."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import psutil
import pytest

from tests.durability.conftest import Deployed, living, wait

pytestmark = pytest.mark.slow


def sweep(deployed: Deployed) -> list[str]:
    """The scheduled flow `resume`, now rather than within five minutes."""
    from prefect.settings import PREFECT_API_URL, temporary_settings

    from flows.resume import resume

    with temporary_settings({PREFECT_API_URL: deployed.place.api}):
        here = os.getcwd()
        os.chdir(deployed.home)
        try:
            return asyncio.run(resume("runs/history.duckdb"))
        finally:
            os.chdir(here)


def test_a_run_started_by_hand_ends_and_cron_has_created_the_next_ones(deployed: Deployed) -> None:
    refused = deployed.prefect("deployment", "run", "train/nightly", "--param", 'options={"run_epochs": 0}')
    assert "0 is less than the minimum of 1" in refused
    flow_run = deployed.trigger("first", epochs=1)
    assert deployed.wait_state(flow_run, "Completed", "Failed", "Crashed") == "Completed"
    assert (deployed.home / "runs/first/report.html").stat().st_size > 100_000
    scheduled = deployed.flow_runs(
        flow_runs={"state": {"type": {"any_": ["SCHEDULED"]}}}, deployments={"name": {"any_": ["nightly"]}}
    )
    assert {run["expected_start_time"][11:16] for run in scheduled} == {"01:00"}
    assert all(run["auto_scheduled"] for run in scheduled)


def test_two_triggers_for_one_run_queue_and_the_second_finds_nothing_left_to_do(deployed: Deployed) -> None:
    one, two = deployed.trigger("queued", epochs=1), deployed.trigger("queued", epochs=1)
    both = set()
    while {deployed.state(one), deployed.state(two)} != {"Completed"}:
        states = deployed.state(one), deployed.state(two)
        both.add(states.count("Running"))
        assert not {"Failed", "Crashed"} & set(states)
        time.sleep(0.3)
    assert both <= {0, 1}
    counts = deployed.rows("SELECT count(*) AS n FROM steps WHERE run = 'queued'")
    assert counts == [{"n": 4}]


def test_a_killed_run_is_started_again_and_trains_every_step_once(deployed: Deployed) -> None:
    flow_run = deployed.trigger("killed")
    deployed.wait_trained("killed", 2)
    os.kill(deployed.holder("killed")["pid"], signal.SIGKILL)
    wait(lambda: sweep(deployed) == ["killed"], 60, "the sweep to find it")
    assert sweep(deployed) == []  # once for each death
    wait(lambda: deployed.holder("killed")["flow_run"] != flow_run, 120, "the new flow run")
    assert deployed.wait_state(deployed.holder("killed")["flow_run"], "Completed", "Failed", "Crashed") == "Completed"
    steps = deployed.rows(
        "SELECT step, status, count(*) AS n FROM steps WHERE run = 'killed' GROUP BY ALL ORDER BY ALL"
    )
    assert steps == [{"step": i, "status": "trained", "n": 1} for i in range(8)]


def test_a_run_goes_on_while_server_and_worker_are_killed(deployed: Deployed) -> None:
    flow_run = deployed.trigger("bereft")
    deployed.wait_trained("bereft", 1)
    pid = deployed.holder("bereft")["pid"]
    deployed.kill("worker")
    deployed.kill("server")
    deployed.wait_trained("bereft", 8)
    assert deployed.wait_state(flow_run, "Completed", "Failed", "Crashed") == "Completed"
    assert deployed.holder("bereft")["pid"] == pid


def test_a_cancelled_run_is_gone_within_ten_seconds_and_the_same_command_goes_on(deployed: Deployed) -> None:
    flow_run = deployed.trigger("cancelled")
    deployed.wait_trained("cancelled", 1)
    process = psutil.Process(deployed.holder("cancelled")["pid"])
    everyone = [process, *process.children(recursive=True)]
    assert len(everyone) > 2
    started = time.monotonic()
    deployed.cancel(flow_run)
    while living(everyone) and time.monotonic() < started + 30:
        time.sleep(0.05)
    assert time.monotonic() - started < 10, living(everyone)
    deployed.wait_state(flow_run, "Cancelled")
    (row,) = deployed.rows("SELECT status FROM runs WHERE run = 'cancelled'")
    assert row["status"] == "cancelled"
    assert sweep(deployed) == []
    again = deployed.trigger("cancelled")
    assert deployed.wait_state(again, "Completed", "Failed", "Crashed") == "Completed"
