"""The Docker executor: a pinned image or one that a harness derives from it, and a reused container for
each concurrent job.

A container has no network, no new privileges, few system calls and capabilities (docker_container.py), a
read-only root, and limits for memory, processes and CPU. Its agent, process 1, isolates the mounts, IPC,
processes and workspace of each job as in a bubblewrap cell, and runs the job's steps as a user without
capabilities. Containers end with their grader; those that a killed grader left behind are removed at the
next start.

Needs a local engine: the control socket is shared through a directory of this host.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

from rtl_grader.errors import InfrastructureError, ToolMissingError
from rtl_grader.grading.executors.base import ExecutorDiedError, Job, Message
from rtl_grader.grading.executors.cells import Cell, CellExecutor
from rtl_grader.grading.executors.docker_container import Container, Kind, Settings, remove
from rtl_grader.grading.executors.toolchain import PROBE, SIM_PYTHON, Toolchain
from rtl_grader.grading.executors.wire import job_message, plain_command, send

IMAGE = "rtl-distill-sim"
_ANY_PYTHON = f"""for python in {SIM_PYTHON} python3
do command -v "$python" >/dev/null && exec "$python" -c "$0"
done
exit 127"""
"""Runs the probe with our Python, or with the one on the image's PATH."""
BUILD = "make sim-image, or build.sh in the folder rtl_grader/grading/sim"
LABEL = "rtl-distill.owner"
_PIP_INSTALL = re.compile(r"RUN\s+(?:python3?\s+-m\s+)?pip3?\s+install\s+(.+)", re.S)
_WITHOUT_EFFECT = re.compile(r"FROM\b|CMD\b|ENTRYPOINT\b|WORKDIR\b|LABEL\b|EXPOSE\b", re.I)
"""Instructions that do not change what grading uses of an image."""
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
            self._api = docker.APIClient(
                version="auto", timeout=120, **docker.utils.kwargs_from_env()
            )
            self._api.ping()
        except Exception as error:
            raise InfrastructureError(
                f"no Docker engine answers: {error}",
                "start one (dockerd), set DOCKER_HOST, or choose the executor bubblewrap",
            ) from error
        pid = str(os.getpid())
        host = socket.gethostname()
        self._owner = f"{host}:{pid}:{_start_of(pid)}"
        memory = None
        if os.path.isdir("/dev/shm"):
            memory = "/dev/shm"
        self._folder = Path(tempfile.mkdtemp(prefix="rtl-distill-docker-", dir=memory))
        (self._folder / "owner").write_text(self._owner)
        self._folder.chmod(0o711)
        try:
            self._sweep()
            self.toolchain = image_toolchain(self._api, image, {LABEL: self._owner})
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._api.close()
            raise
        self._images = DerivedImages(self._api, self.toolchain)
        labels = {
            LABEL: self._owner,
            "rtl.flow_run": os.environ.get("PREFECT__FLOW_RUN_ID", "none"),
        }
        self._settings = Settings(self._api, self._folder, self.toolchain, labels)

    def shell(self, job: Job) -> int:
        """Run the only step of a job on this process' terminal or streams, in its own container; return the exit code.

        Raises ToolMissingError if the client `docker` is not installed.
        """
        client = shutil.which("docker")
        if client is None:
            raise ToolMissingError(
                "the client `docker` is not installed", "apt-get install docker-cli"
            )
        program = plain_command(self.toolchain, "shell.py")
        terminal = sys.stdin.isatty() and sys.stdout.isatty()
        kind = self._kind_of(job)
        container = Container(self._settings, kind, program, stdin_open=True, tty=terminal)
        message = job_message(job, self.toolchain)

        def hand_over() -> None:
            with (
                contextlib.suppress(OSError, ExecutorDiedError),
                container.connect() as channel,
            ):
                send(channel, message)

        with contextlib.closing(container):
            threading.Thread(target=hand_over, daemon=True).start()
            sys.stdout.flush()
            return subprocess.call(
                [client, "start", "--attach", "--interactive", container.name]
            )

    def close(self) -> None:
        """Remove every container of this executor, busy or idle, and its directory."""
        if self._closed:
            return
        super().close()
        with contextlib.suppress(Exception):
            for entry in self._containers(f"{LABEL}={self._owner}"):
                remove(self._api, entry["Id"])
        shutil.rmtree(self._folder, ignore_errors=True)
        self._api.close()

    def _containers(self, label: str) -> list[Message]:
        """The engine's descriptions of all containers with a label."""
        return list(self._api.containers(all=True, filters={"label": label}))

    def _sweep(self) -> None:
        """Remove containers and directories whose grader on this host has ended."""
        for entry in self._containers(LABEL):
            if is_gone(entry["Labels"][LABEL]):
                remove(self._api, entry["Id"])
        for folder in self._folder.parent.glob("rtl-distill-docker-*"):
            if _is_orphan(folder):
                shutil.rmtree(folder, ignore_errors=True)

    def _start(self, kind: Hashable) -> Cell:
        assert isinstance(kind, Kind)
        return Container(self._settings, kind).start()

    def _kind_of(self, job: Job) -> Kind:
        # The agent enforces the limit. The kernel's is well above it, since near it everything inside becomes slow.
        limits = job.limits
        memory_mb = limits.memory_mb + limits.disk_mb + SPARE_MB
        digest = self._images.digest(job.dockerfile)
        return Kind(digest, memory_mb, limits.processes + SPARE_PROCESSES)

    def _last_words(self, cell: Cell, job: Job, start: float) -> Message | None:
        """When all memory is used up, the kernel kills the agent itself."""
        assert isinstance(cell, Container)
        if not cell.out_of_memory():
            return None
        result = {
            "name": job.steps[0].name,
            "exit_code": None,
            "output": "",
            "wall_s": time.monotonic() - start,
            "overrun": "memory",
        }
        return {"steps": [result]}


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


def image_toolchain(api: Any, name: str, labels: Mapping[str, str]) -> Toolchain:
    """Return the toolchain of an image by running the probe in it. Raises InfrastructureError if image or
    tools are missing."""
    import docker.errors

    try:
        digest = api.inspect_image(name)["Id"]
    except docker.errors.ImageNotFound as error:
        raise InfrastructureError(f"the image {name} is missing", BUILD) from error
    try:
        container = api.create_container(
            digest,
            entrypoint=["sh", "-c", _ANY_PYTHON, PROBE[-1]],
            labels=dict(labels),
            network_disabled=True,
            host_config=api.create_host_config(network_mode="none", cap_drop=["ALL"]),
        )["Id"]
        try:
            api.start(container)
            code = api.wait(container)["StatusCode"]
            output = str(api.logs(container, stderr=code != 0).decode())
        finally:
            remove(api, container)
    except docker.errors.APIError as error:
        raise InfrastructureError(
            f"the engine cannot start a container: {error}", "is its disk full?"
        ) from error
    if code:
        complaint = output.strip()[-300:]
        raise InfrastructureError(
            f"the image {name} lacks what grading needs: {complaint}", BUILD
        )
    return Toolchain.of_root(json.loads(output), {"image": digest})


class DerivedImages:
    """Builds images with a harness' additions to the simulation image, each once; the engine keeps them.
    Thread-safe."""

    def __init__(self, api: Any, base: Toolchain) -> None:
        self._api = api
        self._base = base
        self._lock = threading.Lock()
        self._digests: dict[str, str] = {}

    def digest(self, dockerfile: str | None) -> str:
        """Return the image of a harness, built if needed. Raises InfrastructureError if its additions
        cannot be installed."""
        additions = [line for line in instructions(dockerfile or "") if not self._has(line)]
        if not additions:
            return self._base.tools["image"]
        key = "\n".join(additions)
        with self._lock:
            # Held while building, so that each image is built once.
            if key not in self._digests:
                self._digests[key] = self._build(additions)
            return self._digests[key]

    def _has(self, instruction: str) -> bool:
        """Whether an instruction only pip-installs packages that the image has."""
        match = _PIP_INSTALL.fullmatch(instruction)
        if not match:
            return False
        packages = (word for word in match[1].split() if not word.startswith("-"))
        return all(map(self._base.has_package, packages))

    def _build(self, additions: list[str]) -> str:
        import docker.errors

        base = self._base.tools["image"]
        lines = [f"FROM {base}", *additions]
        text = "\n".join(lines) + "\n"
        digest = uuid.uuid5(uuid.NAMESPACE_OID, text).hex
        tag = f"{IMAGE}-derived:{digest[:16]}"
        with contextlib.suppress(docker.errors.ImageNotFound):
            return str(self._api.inspect_image(tag)["Id"])
        folder = Path(tempfile.mkdtemp(prefix="rtl-distill-image-"))
        (folder / "Dockerfile").write_text(text)
        try:
            log = list(
                self._api.build(
                    path=str(folder),
                    tag=tag,
                    network_mode="host",
                    rm=True,
                    forcerm=True,
                    decode=True,
                )
            )
            complaint = next((line["error"] for line in log if "error" in line), None)
        except docker.errors.APIError as error:
            complaint = str(error)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if complaint:
            names = "; ".join(additions)[:200]
            raise InfrastructureError(
                f"the harness' own additions to the image ({names}) cannot be installed: "
                f"{complaint.strip()[-200:]}",
                "check the network, or build the image with them "
                "(packages/rtl-grader/rtl_grader/grading/sim/requirements.txt)",
            )
        return str(self._api.inspect_image(tag)["Id"])


def instructions(dockerfile: str) -> list[str]:
    """Instructions of a harness' Dockerfile that change the image, one per entry, without comments."""
    text = re.sub(r"\\\s*\n", " ", re.sub(r"^\s*#.*$", "", dockerfile, flags=re.M))
    lines = filter(None, map(str.strip, text.splitlines()))
    return [line for line in lines if not _WITHOUT_EFFECT.match(line)]
