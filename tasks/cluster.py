"""Grading on an existing Dask cluster: an executor whose jobs run on the cluster's workers, in the same
kind of executor there.

The rest of grading stays in the run's process: analysis, stages, cache, and the history. Prefect's
DaskTaskRunner makes the connection. Jobs are plain Dask functions, because a task run for each answer would
cost more than most simulations. If a worker dies, the scheduler gives its jobs to another.

Every worker needs this package and the simulators in the same versions; this is checked when the run starts
and with every result. If the scheduler dies, the run stops as interrupted.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any

from rtl_core.config import RunConfig
from rtl_core.errors import ConfigError, InfrastructureError
from rtl_grader.grading.executors import make_executor
from rtl_grader.grading.executors.base import Executor, Job, JobResult

PATIENCE_S = 60.0
"""Seconds to wait for a first worker."""


@contextmanager
def cluster_of(config: RunConfig) -> Iterator[ClusterExecutor | None]:
    """Connect to the cluster of `grading.workers = "dask://host:port"`; None if the run grades on this machine.

    Raises:
        ConfigError: Dask is not installed, or the workers' tools differ from each other.
        InfrastructureError: the scheduler does not answer or has no worker.
    """
    workers = config.grading.workers
    if isinstance(workers, int):
        yield None
        return
    executor = ClusterExecutor(
        workers.replace("dask://", "tcp://", 1), config.grading.executor, config.grading.image
    )
    try:
        yield executor
    finally:
        executor.close()


class ClusterExecutor:
    """An `Executor` on a Dask cluster. `slots` is the number of jobs that the cluster runs concurrently."""

    def __init__(self, address: str, kind: str, image: str | None = None) -> None:
        try:
            import distributed
            from prefect_dask import DaskTaskRunner
        except ImportError as error:
            raise ConfigError(
                f"grading.workers: {error.name} is not installed",
                "pip install 'rtl-distill[dask]', on the workers too",
            ) from error
        self.name, self._kind = kind, (kind, image)
        self.derives_images = kind == "docker"
        self.cpu_s = 0.0
        self._lock = threading.Lock()
        self._runner = DaskTaskRunner(
            address=address, client_kwargs={"timeout": PATIENCE_S, "set_as_default": False}
        )
        self._died: tuple[type[BaseException], ...] = (
            distributed.scheduler.KilledWorker,
            distributed.comm.CommClosedError,
            distributed.TimeoutError,
            CancelledError,
            OSError,
        )
        try:
            self._runner.__enter__()
            self._client: Any = self._runner.client
            self._client.wait_for_workers(1, timeout=PATIENCE_S)
            tools: dict[str, dict[str, str]] = self._client.run(tools_here, self._kind)
        except self._died as error:
            self.close()
            raise InfrastructureError(
                f"no Dask cluster with a worker answers at {address}: {error}",
                "start them: dask scheduler; dask worker ADDRESS, with rtl-distill installed",
            ) from error
        self._tools = _common_tools(tools)
        self.slots = max(1, sum(self._client.nthreads().values()))

    def tools(self) -> dict[str, str]:
        return dict(self._tools)

    def has_module(self, name: str) -> bool:
        return all(self._client.run(has_module_here, self._kind, name).values())

    def run(self, job: Job) -> JobResult:
        """Run one job on a worker; if that one dies, on another."""
        try:
            future = self._client.submit(run_here, self._kind, job, pure=False)
            tools, result = future.result()
        except self._died as error:
            raise InfrastructureError(
                f"the cluster lost a job: {type(error).__name__}: {error}"
            ) from error
        if tools != self._tools:
            raise InfrastructureError(
                "a worker that joined later has other tools than those at the start of the run: "
                f"{_differences(tools, self._tools)}",
                "install the same image or packages on it",
            )
        with self._lock:
            self.cpu_s += sum(step.cpu_s for step in result.steps)
        return result

    def close(self) -> None:
        """Disconnect from the cluster; waiting callers of `run` get an InfrastructureError."""
        self._runner.__exit__(None, None, None)


Kind = tuple[str, str | None]
"""(name of the executor, Docker image)."""
_here: dict[Kind, Executor] = {}
_starting = threading.Lock()


def executor_here(kind: Kind) -> Executor:
    """Return this worker's executor of a kind, started at its first use."""
    with _starting:
        if kind not in _here:
            _here[kind] = make_executor(*kind)
        return _here[kind]


def tools_here(kind: Kind) -> dict[str, str]:
    """On a worker: return the versions of the tools that decide verdicts."""
    return executor_here(kind).tools()


def has_module_here(kind: Kind, name: str) -> bool:
    """On a worker: return whether a harness' Python can import a module."""
    return executor_here(kind).has_module(name)


def run_here(kind: Kind, job: Job) -> tuple[dict[str, str], JobResult]:
    """On a worker: run one job and return the tools' versions and the result."""
    executor = executor_here(kind)
    return executor.tools(), executor.run(job)


def _common_tools(tools_by_worker: dict[str, dict[str, str]]) -> dict[str, str]:
    """Return the tools of the workers, which must all be equal."""
    (first, tools), *others = tools_by_worker.items()
    for worker, theirs in others:
        if theirs != tools:
            raise ConfigError(
                f"grading.workers: {worker} has other tools than {first}: {_differences(theirs, tools)}",
                "verdicts would depend on the worker; install the same image or packages on all",
            )
    return tools


def _differences(ours: dict[str, str], theirs: dict[str, str]) -> str:
    words = []
    for name in sorted({*ours, *theirs}):
        our, their = ours.get(name), theirs.get(name)
        if our != their:
            words.append(f"{name} {our} against {their}")
    return ", ".join(words)
