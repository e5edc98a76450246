"""The Docker executor: a pinned image, one container a job, thrown away after it.

A container has no network, no capabilities, no new privileges, few system calls (seccomp.py), a read-only root, an
unprivileged user, limits for memory, processes, CPU and every writable file system, and the harness mounted read-only.
It is created ahead, with the agent waiting inside as process 1, so that a grade rarely waits for the engine or for
imports; it serves one job, whose services run one after another because
they share their working directory. On a timeout it is killed by name; containers that a dead grader left behind are
swept at the next start.

Needs a local engine: the harness and the control socket are shared through a directory of this host.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rtl_core.errors import InfrastructureError
from rtl_core.grading.executors.base import ExecutorDiedError, Job
from rtl_core.grading.executors.docker_container import Container, Kind
from rtl_core.grading.executors.docker_images import IMAGE, DerivedImages, look_into
from rtl_core.grading.executors.wire import RetryingExecutor
from rtl_core.grading.limits import Limits

LABEL = "rtl-distill.owner"
_REMOVERS = 6
"""A removal mostly waits."""


class DockerExecutor(RetryingExecutor):
    """Runs jobs in containers of an image. Thread-safe; keeps a container for each core waiting."""

    name = "docker"
    derives_images = True
    tries = 3

    def __init__(self, image: str = IMAGE) -> None:
        """Connects to the engine of the environment (DOCKER_HOST), sweeps orphans, and looks into the image.

        Raises InfrastructureError when no engine answers or the image is missing.
        """
        import docker

        super().__init__()
        try:
            self._api = docker.APIClient(version="auto", timeout=120, **docker.utils.kwargs_from_env())
            self._api.ping()
        except Exception as error:
            raise InfrastructureError(
                f"no Docker engine answers: {error}", "start one (dockerd), or set DOCKER_HOST"
            ) from error
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{_start_of(os.getpid())}"
        self._folder = Path(
            tempfile.mkdtemp(prefix="rtl-distill-docker-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        )
        (self._folder / "owner").write_text(f"{os.getpid()}:{_start_of(os.getpid())}")
        self._folder.chmod(0o711)
        try:
            self.sweep()
            self.toolchain, self.runtime = look_into(self._api, image, {LABEL: self._owner})
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        self._images = DerivedImages(self._api, self.toolchain)
        self._ahead = os.cpu_count() or 1
        self._waiting: list[Container] = []
        self._coming = 0
        """How many are being created to wait."""
        self._kind = Kind(self.toolchain.tools["image"], Limits(), runtime=self.runtime)
        self._labels = {LABEL: self._owner, "rtl.flow_run": os.environ.get("PREFECT__FLOW_RUN_ID", "none")}
        self._makers = ThreadPoolExecutor(max_workers=max(2, self._ahead), thread_name_prefix="containers")
        self._removers = ThreadPoolExecutor(max_workers=_REMOVERS, thread_name_prefix="containers-gone")

    def _serve(self, job: Job, *, fresh: bool) -> dict[str, Any]:
        container = self._create(self._kind_of(job)) if fresh else self._take(job)
        started = time.monotonic()
        try:
            return container.run(job)
        except ExecutorDiedError:
            if not self._out_of_memory(container):
                raise
            wall_s = time.monotonic() - started
            step = {"name": job.steps[0].name, "exit_code": None, "output": "", "wall_s": wall_s, "overrun": "memory"}
            return {"steps": [step]}
        finally:
            _later(self._removers, container.remove)

    def shell(self, job: Job) -> int:
        """Runs the only step of a job on this process' terminal or streams, in a container of its own; its exit code.

        Raises ToolMissingError where the client `docker` is not installed.
        """
        container = self._create(self._kind_of(job))
        try:
            return container.shell(job)
        finally:
            container.remove()

    def close(self) -> None:
        """Removes every container of this executor, at work or not, and its directory."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._waiting.clear()
        for pool in (self._makers, self._removers):
            pool.shutdown(wait=True, cancel_futures=True)
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

    def _take(self, job: Job) -> Container:
        """A container that fits the job: one that waits, else a new one."""
        kind = self._kind_of(job)
        usual = kind.mounts == Kind.mounts
        stale: list[Container] = []
        with self._lock:
            if self._closed:
                raise InfrastructureError("the executor was closed")
            if usual and kind != self._kind:
                self._kind, stale, self._waiting = kind, self._waiting, []
            container = self._waiting.pop(0) if kind == self._kind and self._waiting else None
            wanted = self._ahead - len(self._waiting) - self._coming if usual else 0
            self._coming += max(0, wanted)
        for old in stale:
            _later(self._removers, old.remove)
        for _ in range(wanted):
            _later(self._makers, self._prepare, kind)
        return container or self._create(kind)

    def _kind_of(self, job: Job) -> Kind:
        return Kind(self._images.digest(job.dockerfile), job.limits, job.mounts, self.runtime)

    def _create(self, kind: Kind) -> Container:
        return Container(self._api, self._folder, kind, self.toolchain, self._labels)

    def _prepare(self, kind: Kind) -> None:
        """Creates one container ahead, unless others are wanted by now."""
        container = None
        with self._lock:
            wanted = not self._closed and kind == self._kind
        try:
            container = self._create(kind) if wanted else None
        except InfrastructureError:
            return  # the job that needs one will try, and tell
        finally:
            with self._lock:
                self._coming -= 1
                kept = container is not None and not self._closed and kind == self._kind
                if container is not None and kept:
                    self._waiting.append(container)
        if container is not None and not kept:
            container.remove()

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


def _later(pool: ThreadPoolExecutor, work: Callable[..., None], *arguments: Any) -> None:
    with contextlib.suppress(RuntimeError):  # shutting down: `close` removes what is left
        pool.submit(work, *arguments)


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
