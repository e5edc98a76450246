"""The Docker executor: a pinned image, and a reused container for each concurrent job.

A container has no network, no new privileges, few system calls and capabilities (docker_container.py), a read-only root,
and limits for memory, processes and CPU. Its agent, process 1, isolates the mounts, IPC, processes and workspace of each job
as in a bubblewrap cell, and runs the job's steps as a user without capabilities. Containers end with their grader; those
that a killed grader left behind are removed at the next start.

Needs a local engine: the control socket is shared through a directory of this host.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Hashable
from pathlib import Path
from typing import Any

from rtl_core.errors import InfrastructureError
from rtl_core.grading.executors.base import Job
from rtl_core.grading.executors.cells import Cell, CellExecutor
from rtl_core.grading.executors.docker_container import Container, Kind, Settings, shell
from rtl_core.grading.executors.docker_images import IMAGE, DerivedImages, image_toolchain

LABEL = "rtl-distill.owner"
SPARE_MB = 1024
SPARE_PROCESSES = 32
"""Memory and processes of the agent in addition to a job's."""


class DockerExecutor(CellExecutor):
    """Runs jobs in containers of an image."""

    name = "docker"
    derives_images = True
    tries = 3

    def __init__(self, image: str = IMAGE) -> None:
        """Connect to the engine of the environment (DOCKER_HOST), remove orphaned containers, and inspect the image.

        Raises InfrastructureError if no engine answers or the image is missing.
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
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{_start_of(str(os.getpid()))}"
        self._folder = Path(
            tempfile.mkdtemp(prefix="rtl-distill-docker-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        )
        (self._folder / "owner").write_text(self._owner)
        self._folder.chmod(0o711)
        try:
            self.sweep()
            self.toolchain = image_toolchain(self._api, image, {LABEL: self._owner})
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._api.close()
            raise
        self._images = DerivedImages(self._api, self.toolchain)
        labels = {LABEL: self._owner, "rtl.flow_run": os.environ.get("PREFECT__FLOW_RUN_ID", "none")}
        self._settings = Settings(self._api, self._folder, self.toolchain, labels)

    def shell(self, job: Job) -> int:
        """See `docker_container.shell`."""
        return shell(self._settings, self._kind_of(job), job)

    def close(self) -> None:
        """Remove every container of this executor, busy or idle, and its directory."""
        if self._closed:
            return
        super().close()
        with contextlib.suppress(Exception):
            for entry in self._api.containers(all=True, filters={"label": f"{LABEL}={self._owner}"}):
                self._remove(entry["Id"])
        shutil.rmtree(self._folder, ignore_errors=True)
        self._api.close()

    def sweep(self) -> int:
        """Remove containers whose grader on this host has ended; return how many."""
        removed = 0
        for entry in self._api.containers(all=True, filters={"label": LABEL}):
            if is_gone(entry["Labels"][LABEL]):
                removed += self._remove(entry["Id"])
        for folder in Path(self._folder.parent).glob("rtl-distill-docker-*"):
            if _is_orphan(folder):
                shutil.rmtree(folder, ignore_errors=True)
        return removed

    def _start(self, kind: Hashable) -> Cell:
        assert isinstance(kind, Kind)
        return Container(self._settings, kind).start()

    def _kind_of(self, job: Job) -> Kind:
        # The agent enforces the limit. The kernel's is well above it, since near it everything inside becomes slow.
        memory_mb = job.limits.memory_mb + job.limits.disk_mb + SPARE_MB
        return Kind(self._images.digest(job.dockerfile), memory_mb, job.limits.processes + SPARE_PROCESSES)

    def _last_words(self, cell: Cell, job: Job, started: float) -> dict[str, Any] | None:
        """When all memory is used up, the kernel kills the agent itself."""
        assert isinstance(cell, Container)
        if not cell.out_of_memory():
            return None
        wall_s = time.monotonic() - started
        step = {"name": job.steps[0].name, "exit_code": None, "output": "", "wall_s": wall_s, "overrun": "memory"}
        return {"steps": [step]}

    def _remove(self, container: str) -> int:
        try:
            self._api.remove_container(container, force=True, v=True)
        except Exception:
            return 0
        return 1


def is_gone(owner: str) -> bool:
    """Whether a grader, given as `host:pid:start`, ran on this host and has ended."""
    host, pid, start = owner.split(":")
    return host == socket.gethostname() and _start_of(pid) != start


def _is_orphan(folder: Path) -> bool:
    """Whether the grader that made a directory has ended. Without an owner file, after one minute."""
    try:
        return is_gone((folder / "owner").read_text())
    except (OSError, ValueError):
        with contextlib.suppress(OSError):
            return time.time() - folder.stat().st_mtime > 60
        return False


def _start_of(pid: str) -> str:
    """Start time of a process of this host in clock ticks; empty if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[19]
    except OSError:
        return ""
