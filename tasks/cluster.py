"""Grading on an existing Dask cluster: an executor whose jobs run on the cluster's workers, by the same executor there.

Everything else of grading stays where the run is: analysis, stages, cache, and the history, which the run's process alone writes.
The connection is Prefect's DaskTaskRunner's. A job is a plain function there, since a task run for each answer would cost more
than most simulations. A worker that dies costs time: the scheduler gives its jobs to another.

Every worker needs this package and the simulators in the same versions; which they have is asked when the run begins, and told
again with every result. Not covered: a scheduler that dies (the run then stops as interrupted).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any

from rtl_core.config import RunConfig
from rtl_core.errors import ConfigError, InfrastructureError
from rtl_core.grading.executors import make_executor
from rtl_core.grading.executors.base import Executor, Job, JobResult

PATIENCE_S = 60.0
"""How long to wait for a first worker."""


@contextmanager
def cluster_of(config: RunConfig) -> Iterator[ClusterExecutor | None]:
    """The cluster that a run's configuration names with `grading.workers = "dask://host:port"`; None when it grades here.

    Raises:
        ConfigError: Dask is not installed, or the workers' tools differ from each other.
        InfrastructureError: nobody answers there, or there is no worker.
    """
    workers = config.grading.workers
    if isinstance(workers, int):
        yield None
        return
    executor = ClusterExecutor(workers.replace("dask://", "tcp://", 1), config.grading.executor, config.grading.image)
    try:
        yield executor
    finally:
        executor.close()


class ClusterExecutor:
    """An `Executor` over a Dask cluster. `slots` is how many jobs the cluster runs at once."""

    def __init__(self, address: str, kind: str, image: str | None = None) -> None:
        try:
            import distributed
            from prefect_dask import DaskTaskRunner
        except ImportError as error:
            raise ConfigError(
                f"grading.workers: {error.name} is not installed", "pip install 'rtl-distill[dask]', on the workers too"
            ) from error
        self.name, self._kind = kind, (kind, image)
        self.derives_images = kind == "docker"
        self.cpu_s = 0.0
        self._lock = threading.Lock()
        self._runner = DaskTaskRunner(address=address, client_kwargs={"timeout": PATIENCE_S, "set_as_default": False})
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
            found: dict[str, dict[str, str]] = self._client.run(tools_here, self._kind)
        except self._died as error:
            self.close()
            raise InfrastructureError(
                f"no Dask cluster with a worker answers at {address}: {error}",
                "start them: dask scheduler; dask worker ADDRESS, with rtl-distill installed",
            ) from error
        self._tools = _the_same(found)
        self.slots = max(1, sum(self._client.nthreads().values()))

    def tools(self) -> dict[str, str]:
        return dict(self._tools)

    def has_module(self, name: str) -> bool:
        return all(self._client.run(has_module_here, self._kind, name).values())

    def run(self, job: Job) -> JobResult:
        """Runs one job on a worker; when that one dies, on another."""
        try:
            future = self._client.submit(run_here, self._kind, job, pure=False)
            tools, result = future.result()
        except self._died as error:
            raise InfrastructureError(f"the cluster lost a job: {type(error).__name__}: {error}") from error
        if tools != self._tools:
            raise InfrastructureError(
                f"a worker that joined later has other tools than the run began with: {_differences(tools, self._tools)}",
                "give it the same image or packages as the others",
            )
        with self._lock:
            self.cpu_s += sum(step.cpu_s for step in result.steps)
        return result

    def close(self) -> None:
        """Leaves the cluster; whoever waits for a job gets an InfrastructureError."""
        self._runner.__exit__(None, None, None)


Kind = tuple[str, str | None]
"""Name of the executor, and Docker's image."""
_here: dict[Kind, Executor] = {}
_starting = threading.Lock()


def executor_here(kind: Kind) -> Executor:
    """This worker's executor of that kind, started at its first use and kept."""
    with _starting:
        if kind not in _here:
            _here[kind] = make_executor(*kind)
        return _here[kind]


def tools_here(kind: Kind) -> dict[str, str]:
    """On a worker: versions of what decides a verdict."""
    return executor_here(kind).tools()


def has_module_here(kind: Kind, name: str) -> bool:
    """On a worker: whether a harness' Python can import a module."""
    return executor_here(kind).has_module(name)


def run_here(kind: Kind, job: Job) -> tuple[dict[str, str], JobResult]:
    """On a worker: the tools' versions and the result of one job."""
    executor = executor_here(kind)
    return executor.tools(), executor.run(job)


def _the_same(found: dict[str, dict[str, str]]) -> dict[str, str]:
    (first, tools), *others = found.items()
    for worker, theirs in others:
        if theirs != tools:
            raise ConfigError(
                f"grading.workers: {worker} has other tools than {first}: {_differences(theirs, tools)}",
                "verdicts would depend on the worker; give all the same image or packages",
            )
    return tools


def _differences(ours: dict[str, str], theirs: dict[str, str]) -> str:
    names = sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))
    return ", ".join(f"{name} {ours.get(name)} against {theirs.get(name)}" for name in names)
