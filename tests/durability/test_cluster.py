"""Grading on a Dask cluster with two worker processes, one of which dies."""

import asyncio
import json
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rtl_core.config import load_config
from rtl_core.errors import ConfigError, InfrastructureError
from rtl_core.run.check.machine import problems_of
from rtl_distill.tasks.cluster import ClusterExecutor, _common_tools, cluster_of
from rtl_grader.grading.answer_file import AnswerLine
from rtl_grader.grading.executors.base import Job, Step
from rtl_grader.grading.limits import Limits
from rtl_grader.problems.sources import override_of
from rtl_grader.serving.grading_queue import open_queue
from rtl_grader.types.answer import Answer
from tests.waiting import wait_for

pytestmark = pytest.mark.slow


class Cluster:
    """A scheduler and two workers in separate processes, started by `dask scheduler` and `dask worker`."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "scheduler.json"
        self._log = (folder / "dask.log").open("wb")
        self.scheduler = self._start("dask", "scheduler", "--port", "0", "--no-dashboard")
        self.workers = [
            self._start("dask", "worker", "--no-nanny", "--nthreads", "2", "--no-dashboard")
            for _ in range(2)
        ]
        wait_for(
            lambda: self.file.exists() and self.file.read_text().endswith("}"), "the scheduler"
        )
        self.address = json.loads(self.file.read_text())["address"]

    def _start(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [
            str(Path(sys.executable).parent / program),
            *arguments,
            "--scheduler-file",
            str(self.file),
        ]
        return subprocess.Popen(
            command, stdout=self._log, stderr=self._log, cwd=self.file.parent
        )

    def end(self) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()
        self._log.close()


@pytest.fixture
def cluster(tmp_path):
    made = Cluster(tmp_path)
    yield made
    made.end()


def job(seconds: float, says: str) -> Job:
    return Job(
        files={"src/out.txt": says},
        harness={},
        steps=(
            Step("slow", ("sh", "-c", f"sleep {seconds}; cat /code/src/out.txt"), cwd="/code"),
        ),
        limits=Limits(wall_s=600),
    )


def test_no_result_is_lost_with_a_worker(cluster):
    executor = ClusterExecutor(cluster.address, "bubblewrap")
    try:
        # The second worker may join later.
        executor._client.wait_for_workers(2, timeout=600)
        assert set(executor.tools())
        with ThreadPoolExecutor(8) as threads:
            running = [threads.submit(executor.run, job(1.5, f"answer {i}")) for i in range(8)]
            wait_for(
                lambda: all(executor._client.processing().values()), "both workers at work"
            )
            cluster.workers[0].send_signal(signal.SIGKILL)
            results = [future.result(timeout=600) for future in running]
        assert [result.steps[0].output.strip() for result in results] == [
            f"answer {i}" for i in range(8)
        ]
        assert all(result.steps[0].exit_code == 0 for result in results)
    finally:
        executor.close()


def test_closing_ends_the_wait_for_a_job(cluster):
    executor = ClusterExecutor(cluster.address, "bubblewrap")
    threads = ThreadPoolExecutor(1)
    running = threads.submit(executor.run, job(590, "never"))
    wait_for(lambda: any(executor._client.processing().values()), "a worker at work")
    executor.close()
    assert isinstance(running.exception(timeout=300), InfrastructureError)


def test_a_run_survives_kills_of_server_worker_and_a_grading_worker(cluster, deployed):
    address = cluster.address.replace("tcp://", "dask://")
    flow_run = deployed.trigger("bereft", f'grading.workers="{address}"')
    deployed.wait_trained("bereft", 1)
    pid = deployed.holder("bereft")["pid"]
    deployed.kill("worker")
    deployed.kill("server")
    deployed.wait_trained("bereft", 2)
    cluster.workers[1].send_signal(signal.SIGKILL)
    assert deployed.wait_state(flow_run, "Completed", "Failed", "Crashed") == "Completed"
    assert deployed.holder("bereft")["pid"] == pid
    assert (
        deployed.rows("SELECT status FROM steps WHERE run = 'bereft'")
        == [{"status": "trained"}] * 4
    )
    ungraded = "SELECT count(*) AS n FROM rollouts ANTI JOIN verdicts USING (rollout)"
    assert deployed.rows(ungraded) == [{"n": 0}]


def test_the_grading_service_grades_on_the_cluster(cluster, tmp_path):
    address = cluster.address.replace("tcp://", "dask://")
    config = load_config("demo", [override_of(["starter"]), f'grading.workers="{address}"'])
    problems = problems_of(config).every
    with (
        cluster_of(config) as workers,
        open_queue(problems, config.grading, workers, tmp_path / "v.jsonl", 16) as queue,
    ):
        assert workers is not None
        assert queue.pool.threads == workers.slots
        problems = list(queue.problems.values())[:4]
        lines = [
            AnswerLine(0, problem, 0, Answer(files=problem.golden or {}))
            for problem in problems
        ]
        assert [record["outcome"] for record in asyncio.run(queue.grade(lines))] == [
            "passed"
        ] * 4
        assert workers.cpu_s > 0


def test_workers_with_different_tools_are_refused_by_name():
    with pytest.raises(
        ConfigError, match=r"tcp://b has other tools than tcp://a: iverilog 12\.0 against 11\.0"
    ):
        _common_tools({"tcp://a": {"iverilog": "11.0"}, "tcp://b": {"iverilog": "12.0"}})
