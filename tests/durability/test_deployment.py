"""A deployment under faults: triggered runs end, killed runs are restarted, cancelled runs are gone."""

import asyncio
import os
import signal
import time

import pytest

from tests.durability.conftest import ROOT, Deployed
from tests.waiting import wait_for

pytestmark = pytest.mark.slow


def sweep(deployed: Deployed) -> list[str]:
    """Run the scheduled flow `resume` now instead of waiting for up to five minutes."""
    from prefect.settings import PREFECT_API_URL, temporary_settings

    from rtl_distill.flows.resume import resume

    with temporary_settings({PREFECT_API_URL: deployed.place.api}):
        here = os.getcwd()
        os.chdir(deployed.home)
        try:
            return asyncio.run(resume("runs/history.duckdb"))
        finally:
            os.chdir(here)


def test_cron_creates_runs_and_wrong_parameters_are_refused(deployed):
    refused = deployed.prefect(
        "deployment", "run", "train/nightly", "--param", 'options={"run_epochs": 0}'
    )
    assert "0 is less than the minimum of 1" in refused
    wanted = {
        "flow_runs": {"state": {"type": {"any_": ["SCHEDULED"]}}},
        "deployments": {"name": {"any_": ["nightly"]}},
    }
    scheduled = wait_for(lambda: deployed.flow_runs(**wanted), "the scheduler")
    assert {run["expected_start_time"][11:16] for run in scheduled} == {"01:00"}
    assert all(run["auto_scheduled"] for run in scheduled)


def test_the_flows_can_be_deployed_to_a_docker_work_pool(deployed):
    pool = deployed.prefect(
        "work-pool", "create", "rtl-distill-docker", "--type", "docker", "--overwrite"
    )
    assert "Created work pool" in pool
    told = deployed.prefect(
        "--no-prompt",
        "deploy",
        "--all",
        "--prefect-file",
        str(ROOT / "deployments/prefect.docker.yaml"),
    )
    assert told.count("successfully created") == 4, told
    created = deployed.deployment("train/nightly-docker")
    assert created["work_pool_name"] == "rtl-distill-docker"
    assert created["job_variables"]["volumes"] == [f"{deployed.home}:/work"]
    assert created["concurrency_options"]["collision_strategy"] == "ENQUEUE"


def test_of_two_triggers_the_first_trains_with_all_lines_logged_and_the_second_finds_nothing_left(
    deployed,
):
    worker_log = deployed.place.folder / "worker.log"
    before = len(worker_log.read_text())
    flow_run = deployed.trigger("told")
    deployed.wait_state(flow_run, "Running", "Failed", "Crashed")
    second, running, at_its_end = deployed.trigger("told"), set(), ""
    while {deployed.state(flow_run), deployed.state(second)} != {"Completed"}:
        states = deployed.state(flow_run), deployed.state(second)
        running.add(states.count("Running"))
        assert not {"Failed", "Crashed"} & set(states)
        if "report: " not in at_its_end:
            at_its_end = worker_log.read_text()[before:]
        time.sleep(0.3)
    assert running <= {0, 1}
    assert deployed.rows("SELECT count(*) AS n FROM steps WHERE run = 'told'") == [{"n": 4}]
    assert (deployed.home / "runs/told/report.html").stat().st_size > 100_000

    def complete_log():
        text = deployed.prefect("flow-run", "logs", flow_run)
        return text if "report: " in text else None

    told = wait_for(complete_log, "the last lines to reach the server")
    for text in (told, at_its_end):
        for line in (
            *(f"step   {n}/4  reward" for n in range(1, 5)),
            "== epoch 1 of 1",
            "Run told: held-out problems",
        ):
            assert text.count(line) == 1, (line, text)
        assert text.count("== evaluation: student") == 2
        assert "runs/told/report.html" in text
        assert " INFO " in text
    # The artifacts are on the page of the triggered run, not on those of its subflows.
    shown = deployed.post("/artifacts/filter", artifacts={"flow_run_id": {"any_": [flow_run]}})
    assert {artifact["key"] for artifact in shown} == {
        "progress-told",
        "steps-told",
        "result-told",
    }
    results = [artifact["data"] for artifact in shown if artifact["key"] == "result-told"]
    assert len(results) == 2  # at the start of the run and at its end
    assert all(
        "rtl-distill view --db " in text and "runs/told/report.html" in text for text in results
    )
    epochs = {"name": {"any_": ["told epoch 1 of 1"]}}
    assert len(deployed.flow_runs(flow_runs=epochs)) == 2  # one of each trigger
    (triggered,) = deployed.flow_runs(flow_runs={"id": {"any_": [flow_run]}})
    assert triggered["name"] == "train told"
    assert {"rtl-distill", "told"} <= set(triggered["tags"])
    tasks = [task["name"] for task in deployed.post("/task_runs/filter", flow_runs=epochs)]
    assert [tasks.count(f"train step {n}") for n in range(1, 5)] == [1] * 4


def test_a_killed_run_is_restarted_and_trains_every_step_once(deployed):
    flow_run = deployed.trigger("killed")
    deployed.wait_trained("killed", 2)
    os.kill(deployed.holder("killed")["pid"], signal.SIGKILL)

    def restarted():
        return deployed.holder("killed")["flow_run"] != flow_run

    wait_for(
        lambda: sweep(deployed) == ["killed"] or restarted(),
        "a sweep, this one or the schedule's, to find it",
    )
    assert sweep(deployed) == []  # once for each death
    wait_for(restarted, "the new flow run")
    assert (
        deployed.wait_state(
            deployed.holder("killed")["flow_run"], "Completed", "Failed", "Crashed"
        )
        == "Completed"
    )
    steps = deployed.rows(
        "SELECT step, status, count(*) AS n FROM steps WHERE run = 'killed' GROUP BY ALL ORDER BY ALL"
    )
    assert steps == [{"step": i, "status": "trained", "n": 1} for i in range(4)]


def test_a_cancelled_run_is_gone_and_the_same_command_resumes_it(deployed):
    deployed.cancel_in_training("cancelled")
    (row,) = deployed.rows("SELECT status FROM runs WHERE run = 'cancelled'")
    assert row["status"] == "cancelled"
    assert sweep(deployed) == []
    again = deployed.trigger("cancelled")
    assert deployed.wait_state(again, "Completed", "Failed", "Crashed") == "Completed"


def test_a_small_budget_pauses_a_run_and_a_larger_one_resumes_it(deployed):
    prices = deployed.home / "prices.toml"
    models = "".join(
        f"[models.{name}]\nprefill = 3.0\ncached = 0.6\nsample = 9.0\ntrain = 9.0\n"
        for name in ("student", "teacher")
    )
    prices.write_text(f'as_of = 2026-01-01\nsource = "a test"\n{models}')
    flow_run = deployed.trigger(
        "thrifty", f"cost.prices={prices}", "cost.budget_usd=0.03", epochs=2
    )
    assert deployed.wait_state(flow_run, "Completed", "Failed", "Crashed") == "Completed"
    (row,) = deployed.rows("SELECT status, message FROM runs WHERE run = 'thrifty'")
    assert row["status"] == "paused"
    assert "the budget of $0.03 would be exceeded" in row["message"]
    (paid,) = deployed.rows(
        "SELECT sum(value) AS usd, count(*) AS n FROM step_metrics WHERE run = 'thrifty' AND name = 'cost/usd'"
    )
    assert 0 < paid["usd"] <= 0.03
    assert 0 < paid["n"] < 8
    again = deployed.trigger(
        "thrifty", f"cost.prices={prices}", "cost.budget_usd=1000", epochs=2
    )
    assert deployed.wait_state(again, "Completed", "Failed", "Crashed") == "Completed"
    assert deployed.rows(
        "SELECT count(*) AS n FROM steps WHERE run = 'thrifty' AND status = 'trained'"
    ) == [{"n": 8}]
