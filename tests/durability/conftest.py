"""A complete deployment on loopback, and runs small enough to be killed often."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from rtl_core.history.store import History
from rtl_core.run.lock import read_holder
from rtl_distill.operations.local import LocalDeployment, down, up
from tests.waiting import lives, wait_for

ROOT = Path(__file__).parents[2]

TINY = [
    "problems.sources.0.train=8",
    "problems.sources.0.heldout=2",
    "problems.validation_mutants=0",
    "curriculum.problems_per_step=2",
    "sampling.group_size=2",
    "evaluation.samples=2",
    "evaluation.k=[1, 2]",
    "evaluation.teacher=false",
    "learning.warm_start_steps=0",
    "learning.kl_schedule=constant",
    "learning.replace_with_kl=false",
    "tinker.local_deterministic=true",
    "tinker.local_threads=1",
]
"""Overrides of the demo: four steps per epoch, four rollouts per step."""


POLLS = {
    "PREFECT_WORKER_QUERY_SECONDS": "1",
    "PREFECT_SERVER_DEPLOYMENTS_CONCURRENCY_SLOT_WAIT_SECONDS": "2",
}
"""Poll intervals of workers for runs and of runs for a slot; the defaults of 10 and 30 s would dominate the time of these tests."""


class Deployed:
    """A running deployment, accessed through Prefect's API."""

    def __init__(self, place: LocalDeployment) -> None:
        self.place = place
        self.home = place.home
        self.history = History(place.home / "runs/history.duckdb", read_only=True)
        self._http = httpx.Client(
            base_url=place.api, timeout=60, transport=httpx.HTTPTransport(retries=3)
        )

    def trigger(
        self, run: str, *overrides: str, deployment: str = "train/nightly", epochs: int = 1
    ) -> str:
        """Start a run of that name; returns the flow run's id."""
        parameters = {
            "config": "demo",
            "overrides": [*TINY, *overrides],
            "options": {"run_name": run, "run_epochs": epochs},
        }
        # A busy server answers 503 occasionally; with the key, a retry creates no second run.
        body = {"parameters": parameters, "idempotency_key": str(uuid.uuid4())}

        def post() -> str:
            found = self.deployment(deployment)
            created = self._http.post(f"/deployments/{found['id']}/create_flow_run", json=body)
            return created.raise_for_status().json()["id"]

        return wait_for(post, "the server to take a run")

    def deployment(self, name: str) -> dict[str, Any]:
        def get() -> dict[str, Any]:
            return self._http.get(f"/deployments/name/{name}").raise_for_status().json()

        return wait_for(get, "the server to answer")

    def state(self, flow_run: str) -> str:
        def get() -> str:
            return (
                self._http.get(f"/flow_runs/{flow_run}")
                .raise_for_status()
                .json()["state"]["name"]
            )

        return wait_for(get, "the server to answer")

    def cancel(self, flow_run: str) -> None:
        body = {"state": {"type": "CANCELLING"}, "force": False}

        def post() -> bool:
            return (
                self._http.post(f"/flow_runs/{flow_run}/set_state", json=body)
                .raise_for_status()
                .is_success
            )

        wait_for(post, "the server to cancel")

    def flow_runs(self, **filters: Any) -> list[dict[str, Any]]:
        return self.post("/flow_runs/filter", **filters)

    def post(self, path: str, **filters: Any) -> list[dict[str, Any]]:
        def post() -> list[list[dict[str, Any]]]:
            return [self._http.post(path, json=filters).raise_for_status().json()]

        return wait_for(post, "the server to answer")[0]

    def wait_state(self, flow_run: str, *names: str, patience_s: float = 900) -> str:
        return wait_for(
            lambda: (state := self.state(flow_run)) in names and state,
            f"{flow_run} in {names}",
            patience_s,
        )

    def holder(self, run: str) -> dict[str, Any]:
        """The holder of a run's lock: process, flow run, deployment. The file may be empty for a moment when the holder changes."""
        return wait_for(
            lambda: read_holder(self.home / "runs" / run / "lock"), f"the holder of {run}"
        )

    def rows(self, sql: str) -> list[dict[str, Any]]:
        return self.history.query(sql).to_pylist()

    def wait_trained(self, run: str, steps: int, patience_s: float = 900) -> None:
        sql = f"SELECT count(*) AS n FROM steps WHERE run = '{run}' AND status = 'trained'"
        wait_for(
            lambda: self.rows(sql)[0]["n"] >= steps,
            f"{steps} trained steps of {run}",
            patience_s,
        )

    def cancel_in_training(self, run: str) -> None:
        """Cancel a run in the middle of its training, and wait until all of its processes have ended."""
        flow_run = self.trigger(run)
        self.wait_trained(run, 1)
        process = psutil.Process(self.holder(run)["pid"])
        processes = [process, *process.children(recursive=True)]
        assert len(processes) > 2
        self.cancel(flow_run)
        wait_for(
            lambda: not any(map(lives, processes)),
            "all processes of the run to end",
            patience_s=120,
        )
        self.wait_state(flow_run, "Cancelled")

    def kill(self, part: str) -> None:
        """kill -9 of the server or the worker; its keeper restarts it."""
        keeper = self.place.pid_of(part)
        assert keeper is not None
        for child in psutil.Process(keeper).children():
            child.send_signal(signal.SIGKILL)

    def prefect(self, *arguments: str) -> str:
        """Run the `prefect` program as a user does."""
        program = Path(sys.executable).parent / "prefect"
        environment = {**os.environ, **self.place.settings(), "COLUMNS": "200"}
        done = subprocess.run(
            [program, *arguments], env=environment, capture_output=True, text=True, timeout=600
        )
        return done.stdout + done.stderr


@contextlib.contextmanager
def deployment(home: Path, database: str | None = None) -> Iterator[Deployed]:
    """Server, pool, deployments and worker on a free port, with all their files below `home`."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    place = LocalDeployment(home=home, folder=home / "deployment", port=port, database=database)
    with pytest.MonkeyPatch.context() as patched:
        for name, seconds in POLLS.items():
            patched.setenv(name, seconds)
        try:
            up(place, ROOT / "deployments/prefect.yaml", print)
            yield Deployed(place)
        finally:
            left = down(place, print)
    assert left == []


@pytest.fixture(scope="session")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """One deployment for all tests in this folder, because starting it takes as long as a small run."""
    with deployment(tmp_path_factory.mktemp("home")) as running:
        yield running
