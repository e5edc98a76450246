"""One container of the Docker executor, with its agent as process 1."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from rtl_core.errors import InfrastructureError, ToolMissingError
from rtl_core.grading.executors import docker_confinement as confinement
from rtl_core.grading.executors.base import ExecutorDiedError, Job
from rtl_core.grading.executors.cells import Cell
from rtl_core.grading.executors.toolchain import Toolchain
from rtl_core.grading.executors.wire import (
    GUARD,
    INSIDE,
    agent_environment,
    job_message,
    receive,
    send,
    warm_command,
)

START_S = 120.0
CONTROL = "/control"


@dataclass(frozen=True)
class Kind:
    """What containers have to have in common to stand in for one another."""

    image: str
    memory_mb: int
    """For all that runs inside, files of a job included."""
    processes: int


@dataclass(frozen=True)
class Settings:
    """What all containers of an executor have in common."""

    api: Any
    folder: Path
    """Holds the directories that host and containers share."""
    toolchain: Toolchain
    labels: Mapping[str, str]


class Container(Cell):
    """A container whose agent waits for jobs."""

    def __init__(self, settings: Settings, kind: Kind) -> None:
        """Returns when the agent is ready. Raises InfrastructureError when the engine refuses."""
        self.kind, self._settings = kind, settings
        self.name, self._folder = _create(settings, kind, warm_command(settings.toolchain))
        try:
            settings.api.start(self.name)
            self.agent = _connect(settings, self._folder, self.name)
            receive(self.agent, START_S)
        except Exception as error:
            self.close()
            raise InfrastructureError(f"the engine cannot start a container: {error}", "is its disk full?") from error

    def kill(self) -> None:
        with contextlib.suppress(Exception):
            self._settings.api.kill(self.name)

    def close(self) -> None:
        _remove(self._settings, self._folder, self.name)
        if hasattr(self, "agent"):
            self.agent.close()

    def out_of_memory(self) -> bool:
        """Whether the kernel has killed something in it for want of memory."""
        with contextlib.suppress(Exception):
            return bool(self._settings.api.inspect_container(self.name)["State"]["OOMKilled"])
        return False


def shell(settings: Settings, kind: Kind, job: Job) -> int:
    """Runs the only step of a job on this process' terminal or streams, in a container of its own; its exit code.

    Raises ToolMissingError where the client `docker` is not installed.
    """
    client = shutil.which("docker")
    if client is None:
        raise ToolMissingError("the client `docker` is not installed", "apt-get install docker-cli")
    program = [settings.toolchain.python, "-E", "-s", "-S", f"{GUARD}/shell.py"]
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    name, folder = _create(settings, kind, program, stdin_open=True, tty=terminal)
    message = job_message(job, settings.toolchain)

    def hand_over() -> None:
        with contextlib.suppress(OSError, ExecutorDiedError), _connect(settings, folder, name) as channel:
            send(channel, message)

    try:
        sender = threading.Thread(target=hand_over, daemon=True)
        sender.start()
        sys.stdout.flush()
        return subprocess.call([client, "start", "--attach", "--interactive", name])
    finally:
        _remove(settings, folder, name)


def _create(settings: Settings, kind: Kind, program: Sequence[str], **streams: bool) -> tuple[str, Path]:
    """A container that is not started yet; its name, and the directory that it shares with this host."""
    name = f"rtl-distill-{uuid.uuid4().hex[:16]}"
    folder = settings.folder / name
    folder.mkdir()
    folder.chmod(0o777)  # where the engine maps users, its root is a stranger here
    agent = {**agent_environment(settings.toolchain.python), "RTL_CONTROL_SOCKET": f"{CONTROL}/agent.sock"}
    try:
        settings.api.create_container(
            kind.image,
            entrypoint=list(program),
            name=name,
            environment={**settings.toolchain.environment(), **agent},
            labels=dict(settings.labels),
            host_config=settings.api.create_host_config(
                binds=[f"{INSIDE}:{GUARD}:ro", f"{folder}:{CONTROL}:rw"],
                **confinement.host(kind.memory_mb, kind.processes),
            ),
            user="0:0",
            working_dir="/",
            network_disabled=True,
            **streams,
        )
    except Exception as error:
        _remove(settings, folder, name)
        raise InfrastructureError(f"the engine cannot create a container: {error}", "is its disk full?") from error
    return name, folder


def _remove(settings: Settings, folder: Path, name: str) -> None:
    with contextlib.suppress(Exception):
        settings.api.remove_container(name, force=True, v=True)
    shutil.rmtree(folder, ignore_errors=True)


def _connect(settings: Settings, folder: Path, name: str) -> Connection:
    """The socket of the agent, as soon as it listens. Raises ExecutorDiedError where it never does."""
    deadline, look = time.monotonic() + START_S, time.monotonic() + 0.5
    while True:
        channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            channel.connect(str(folder / "agent.sock"))
            return Connection(channel.detach())
        except OSError as error:
            channel.close()
            now = time.monotonic()
            ended = now > look and _ended(settings, name)
            look = now + 0.5 if now > look else look
            if now > deadline or ended:
                raise ExecutorDiedError(f"the container's agent does not answer: {error}") from error
            time.sleep(0.01)


def _ended(settings: Settings, name: str) -> bool:
    """Whether the container has run and ended, or the engine does not answer."""
    try:
        return str(settings.api.inspect_container(name)["State"]["Status"]) not in ("created", "running")
    except Exception:
        return True
