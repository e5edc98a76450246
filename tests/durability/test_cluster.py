"""Grading on a Dask cluster of two worker processes, one of which dies."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rtl_core.errors import ConfigError, InfrastructureError
from rtl_core.grading import Limits
from rtl_core.grading.executors.base import Job, Step
from tasks.cluster import ClusterExecutor, _the_same

pytestmark = pytest.mark.slow


class Cluster:
    """A scheduler and two workers as processes of their own, as `dask scheduler` and `dask worker` start them."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "scheduler.json"
        self._log = (folder / "dask.log").open("wb")
        self.scheduler = self._start("dask", "scheduler", "--port", "0", "--no-dashboard")
        self.workers = [
            self._start("dask", "worker", "--no-nanny", "--nthreads", "2", "--no-dashboard") for _ in range(2)
        ]
        import json

        for _ in range(600):
            if self.file.exists():
                break
            time.sleep(0.1)
        self.address = json.loads(self.file.read_text())["address"]

    def _start(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [str(Path(sys.executable).parent / program), *arguments, "--scheduler-file", str(self.file)]
        return subprocess.Popen(command, stdout=self._log, stderr=self._log, cwd=self.file.parent)

    def end(self) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()
        self._log.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.end()


def job(seconds: float, says: str) -> Job:
    return Job(
        files={"src/out.txt": says},
        harness={},
        steps=(Step("slow", ("sh", "-c", f"sleep {seconds}; cat /code/src/out.txt"), cwd="/code"),),
        limits=Limits(wall_s=60),
    )


def test_a_lost_worker_costs_time_and_no_result(cluster: Cluster) -> None:
    executor = ClusterExecutor(cluster.address, "bubblewrap")
    try:
        # A worker may join after the first was found.
        executor._client.wait_for_workers(2, timeout=120)
        assert set(executor.tools())
        with ThreadPoolExecutor(8) as threads:
            running = [threads.submit(executor.run, job(1.5, f"answer {i}")) for i in range(8)]
            time.sleep(1.0)
            cluster.workers[0].send_signal(signal.SIGKILL)
            results = [future.result(timeout=120) for future in running]
        assert [result.steps[0].output.strip() for result in results] == [f"answer {i}" for i in range(8)]
        assert all(result.steps[0].exit_code == 0 for result in results)
    finally:
        executor.close()


def test_closing_frees_whoever_waits_for_a_job(cluster: Cluster) -> None:
    executor = ClusterExecutor(cluster.address, "bubblewrap")
    ended: list[BaseException] = []

    def run() -> None:
        try:
            executor.run(job(60, "never"))
        except InfrastructureError as error:
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(1.0)
    executor.close()
    thread.join(10)
    assert isinstance(ended[0], InfrastructureError)


def test_a_run_grades_on_the_cluster_and_survives_the_loss_of_a_worker(cluster: Cluster, tmp_path: Path) -> None:
    from flows.train import train
    from rtl_core.history.store import History
    from tests.durability.conftest import TINY

    address = cluster.address.replace("tcp://", "dask://")
    places = ["run.name=spread", f"run.directory={tmp_path}", f"run.history={tmp_path / 'h.duckdb'}", "run.epochs=2"]

    def kill_when_training() -> None:
        reader = History(tmp_path / "h.duckdb", read_only=True)
        while True:
            time.sleep(0.3)
            try:
                if reader.query("SELECT count(*) AS n FROM steps WHERE status = 'trained'").to_pylist()[0]["n"] >= 2:
                    break
            except Exception:
                continue
        cluster.workers[1].send_signal(signal.SIGKILL)

    threading.Thread(target=kill_when_training, daemon=True).start()
    asyncio.run(train("demo", [*TINY, *places, f'grading.workers="{address}"']))
    history = History(tmp_path / "h.duckdb")
    steps = history.steps("spread")
    assert [state.status for state in steps] == ["trained"] * 8
    ungraded = "SELECT count(*) AS n FROM rollouts ANTI JOIN verdicts USING (rollout)"
    assert history.query(ungraded).to_pylist() == [{"n": 0}]


def test_workers_with_other_tools_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"tcp://b has other tools than tcp://a: iverilog 12\.0 against 11\.0"):
        _the_same({"tcp://a": {"iverilog": "11.0"}, "tcp://b": {"iverilog": "12.0"}})
