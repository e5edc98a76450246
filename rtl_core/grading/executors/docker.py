"""The Docker executor: a pinned image, one container a job, thrown away after it.

A container has no network, no capabilities, no new privileges, a read-only root, an unprivileged user, limits for
memory, processes, CPU and every writable file system, and the harness mounted read-only. It is created ahead, with the
agent waiting inside as process 1, so that a grade does not wait for the engine; it serves one job, whose services run
one after another because they share their working directory. On a timeout it is killed by name; containers that a
dead grader left behind are swept at the next start.

Needs a local engine: the harness and the control socket are shared through a directory of this host.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rtl_core.errors import InfrastructureError, ToolMissingError
from rtl_core.grading.executors.base import ExecutorDiedError, Job, JobResult, Mount, StepResult
from rtl_core.grading.executors.docker_container import Container
from rtl_core.grading.executors.docker_images import IMAGE, DerivedImages, look_into
from rtl_core.grading.executors.wire import step_result
from rtl_core.grading.limits import Limits

LABEL = "rtl-distill.owner"
_TRIES = 3
_STANDARD_MOUNTS = (Mount("src", "/src"),)


class DockerExecutor:
    """Runs jobs in containers of an image. Thread-safe; keeps `ahead` containers waiting."""

    name = "docker"
    derives_images = True

    def __init__(self, image: str = IMAGE, *, ahead: int | None = None, flow_run: str | None = None) -> None:
        """Connects to the engine of the environment (DOCKER_HOST), sweeps orphans, and looks into the image.

        Raises ToolMissingError without the `docker` package, InfrastructureError when no engine answers or the image
        is missing.
        """
        try:
            import docker
        except ImportError as error:
            raise ToolMissingError(
                "the Python package `docker` is not installed", "pip install rtl-distill[docker]"
            ) from error
        try:
            self._api = docker.APIClient(version="auto", timeout=120, **docker.utils.kwargs_from_env())
            self._api.ping()
        except Exception as error:
            raise InfrastructureError(
                f"no Docker engine answers: {error}", "start one (dockerd), or set DOCKER_HOST"
            ) from error
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{_start_of(os.getpid())}"
        self._flow_run = flow_run or os.environ.get("PREFECT__FLOW_RUN_ID", "none")
        self._lock = threading.Lock()
        self._closed = False
        self.cpu_s = 0.0
        self._folder = Path(
            tempfile.mkdtemp(prefix="rtl-distill-docker-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        )
        (self._folder / "owner").write_text(f"{os.getpid()}:{_start_of(os.getpid())}")
        self._folder.chmod(0o711)
        try:
            self.sweep()
            self.image = look_into(self._api, image, {LABEL: self._owner})
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        self._images = DerivedImages(self._api, self.image)
        self._ahead = ahead if ahead is not None else (os.cpu_count() or 1)
        self._waiting: list[Container] = []
        self._kind = (self.image.digest, Limits())
        self._behind = ThreadPoolExecutor(max_workers=2, thread_name_prefix="containers")

    def tools(self) -> dict[str, str]:
        """The image by digest, and the versions in it."""
        return self.image.tools()

    def has_module(self, name: str) -> bool:
        return self.image.inside.has_module(name)

    def run(self, job: Job) -> JobResult:
        """Runs one job in a container of its own; a container that dies is replaced and the job is tried again."""
        for attempt in range(_TRIES):
            container = self._take(job)
            started = time.monotonic()
            try:
                answer = container.run(job)
            except ExecutorDiedError:
                if self._out_of_memory(container):
                    step = job.steps[0].name
                    wall_s = time.monotonic() - started
                    return JobResult((StepResult(step, None, "", wall_s, overrun="memory"),), wall_s)
                if attempt + 1 == _TRIES or self._closed:
                    raise
                continue
            finally:
                self._later(container.remove)
            if "error" in answer:
                if attempt + 1 == _TRIES:
                    raise InfrastructureError(
                        f"the container's agent failed: {answer['error'].strip().splitlines()[-1]}"
                    )
                continue
            results = tuple(step_result(step) for step in answer["steps"])
            with self._lock:
                self.cpu_s += sum(result.cpu_s for result in results)
            return JobResult(results, time.monotonic() - started)
        raise AssertionError("unreachable")

    def close(self) -> None:
        """Removes every container of this executor, at work or not, and its directory."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._waiting.clear()
        self._behind.shutdown(wait=True, cancel_futures=True)
        self._remove_where({LABEL: self._owner})
        shutil.rmtree(self._folder, ignore_errors=True)
        self._api.close()

    def sweep(self) -> int:
        """Removes containers whose grader is gone from this host; how many."""
        removed = 0
        for entry in self._api.containers(all=True, filters={"label": LABEL}):
            host, _, rest = entry["Labels"][LABEL].partition(":")
            pid, _, start = rest.partition(":")
            if host == socket.gethostname() and _start_of(int(pid)) != start:
                removed += self._remove(entry["Id"])
        for folder in Path(self._folder.parent).glob("rtl-distill-docker-*"):
            if _is_orphan(folder):
                shutil.rmtree(folder, ignore_errors=True)
        return removed

    def __enter__(self) -> DockerExecutor:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _take(self, job: Job) -> Container:
        """A container that fits the job: one that waits, else a new one."""
        image = self._images.digest(job.dockerfile)
        kind = (image, job.limits)
        with self._lock:
            if self._closed:
                raise InfrastructureError("the executor was closed")
            fits = kind == self._kind and job.mounts == _STANDARD_MOUNTS
            stale = [] if kind == self._kind else self._waiting
            if kind != self._kind and job.mounts == _STANDARD_MOUNTS:
                self._kind, self._waiting = kind, []
            container = self._waiting.pop(0) if fits and self._waiting else None
            wanted = self._ahead - len(self._waiting)
        for old in stale:
            self._later(old.remove)
        if job.mounts == _STANDARD_MOUNTS:
            for _ in range(wanted):
                self._later(self._prepare, kind)
        return container or self._create(image, job.limits, job.mounts)

    def _create(self, image: str, limits: Limits, mounts: tuple[Mount, ...]) -> Container:
        labels = {LABEL: self._owner, "rtl.flow_run": self._flow_run}
        return Container(self._api, self._folder, image, self.image.inside, limits, mounts, labels)

    def _prepare(self, kind: tuple[str, Limits]) -> None:
        """Creates one container ahead, unless there are enough or others are wanted by now."""
        with self._lock:
            if self._closed or kind != self._kind or len(self._waiting) >= self._ahead:
                return
        try:
            container = self._create(*kind, _STANDARD_MOUNTS)
        except InfrastructureError:
            return  # the job that needs one will try, and tell
        with self._lock:
            if not self._closed and kind == self._kind and len(self._waiting) < self._ahead:
                self._waiting.append(container)
                return
        container.remove()

    def _later(self, work: Any, *arguments: Any) -> None:
        try:
            self._behind.submit(work, *arguments)
        except RuntimeError:  # shutting down: `close` removes what is left
            return

    def _out_of_memory(self, container: Container) -> bool:
        with contextlib.suppress(Exception):
            return bool(self._api.inspect_container(container.name)["State"]["OOMKilled"])
        return False

    def _remove_where(self, labels: dict[str, str]) -> None:
        with contextlib.suppress(Exception):
            filters = {"label": [f"{key}={value}" for key, value in labels.items()]}
            for entry in self._api.containers(all=True, filters=filters):
                self._remove(entry["Id"])

    def _remove(self, container: str) -> int:
        try:
            self._api.remove_container(container, force=True, v=True)
        except Exception:
            return 0
        return 1


def _is_orphan(folder: Path) -> bool:
    """Whether the grader that made a directory is gone. One that died before it signed it is given a minute."""
    try:
        pid, _, start = (folder / "owner").read_text().partition(":")
        return _start_of(int(pid)) != start
    except (OSError, ValueError):
        with contextlib.suppress(OSError):
            return time.time() - folder.stat().st_mtime > 60
        return False


def _start_of(pid: int) -> str:
    """When a process of this host started, in clock ticks; empty when there is none."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[19]
    except OSError:
        return ""
