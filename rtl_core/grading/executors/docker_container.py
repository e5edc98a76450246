"""One container of the Docker executor, with its agent waiting as process 1; it serves one job."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rtl_core.errors import InfrastructureError, ToolMissingError
from rtl_core.grading.executors import docker_confinement as confinement
from rtl_core.grading.executors.base import ExecutorDiedError, Job, Mount
from rtl_core.grading.executors.toolchain import Toolchain
from rtl_core.grading.executors.wire import (
    GUARD,
    INSIDE,
    Connection,
    agent_environment,
    job_message,
    patience,
    warm_command,
)
from rtl_core.grading.limits import Limits

START_S = 120.0
END_S = 2.0
_READY = "/tmp/.workspace-is-ready"
NOTICE_S = 0.2


@dataclass(frozen=True)
class Kind:
    """What containers have to have in common to stand in for one another."""

    image: str
    limits: Limits
    mounts: tuple[Mount, ...] = (Mount("src", "/src"),)
    runtime: str | None = None
    """The engine's runtime that starts them, None for its default."""


class Container:
    """Created and started at once; `run` serves its one job."""

    def __init__(self, api: Any, folder: Path, kind: Kind, toolchain: Toolchain, labels: Mapping[str, str]) -> None:
        """`folder` holds the directories that host and container share.

        Raises InfrastructureError when the engine refuses.
        """
        self._api, self._toolchain = api, toolchain
        self.name = f"rtl-distill-{uuid.uuid4().hex[:16]}"
        self.folder = folder / self.name
        self._channel: socket.socket | None = None
        self._hosted = tuple(dict.fromkeys(["src", *(mount.source.split("/")[0] for mount in kind.mounts)]))
        for directory in ("control", *self._hosted):
            (self.folder / directory).mkdir(parents=True)
            (self.folder / directory).chmod(0o777 if directory != "src" else 0o755)
        agent = {**agent_environment(toolchain.python), "RTL_CONTROL_SOCKET": "/control/agent.sock"}
        try:
            api.create_container(
                kind.image,
                entrypoint=warm_command(toolchain),
                name=self.name,
                environment={**toolchain.environment(), **agent},
                labels=dict(labels),
                host_config=api.create_host_config(
                    binds=self._binds(kind.mounts), **confinement.host(kind.limits, kind.runtime)
                ),
                **confinement.container(),
            )
            api.start(self.name)
        except Exception as error:
            self.remove()
            raise InfrastructureError(f"the engine cannot start a container: {error}", "is its disk full?") from error

    def run(self, job: Job) -> dict[str, Any]:
        """Hands the job to the agent and waits for its answer. Raises ExecutorDiedError when there is none."""
        for path, text in (*job.files.items(), *job.harness.items()):
            if path.split("/")[0] in self._hosted:
                full = Path(os.path.normpath(self.folder / path))
                if self.folder not in full.parents:
                    raise InfrastructureError(f"path outside the workspace: {path!r}")
                full.parent.mkdir(parents=True, exist_ok=True)
                full.write_bytes(text.encode("utf-8", "surrogateescape"))
        self._channel = self._connect()
        try:
            connection = Connection(self._channel)
            connection.receive(START_S)
            message = {**job_message(job, 0, self._toolchain), "hosted": list(self._hosted)}
            return connection.ask(message, patience(job))
        except ExecutorDiedError:
            self.kill()
            raise

    def shell(self, job: Job) -> int:
        """Runs the only step of a job on this process' terminal or streams, beside an agent that keeps the workspace."""
        client = shutil.which("docker")
        if client is None:
            raise ToolMissingError("the client `docker` is not installed", "apt-get install docker-cli")
        (step,) = job.steps
        waiting = replace(step, argv=("sh", "-c", f"touch {_READY}; exec sleep infinity"), cwd="/")
        limits = job.limits.model_copy(update={"wall_s": 3600.0, "cpu_s": 3600.0})
        held = threading.Thread(
            target=self._hold, args=(replace(job, steps=(waiting,), limits=limits, budget_s=None),), daemon=True
        )
        held.start()
        environment = job_message(job, 0, self._toolchain)["steps"][0]["env"]
        given = [word for name, value in environment.items() for word in ("--env", f"{name}={value}")]
        streams = "-it" if sys.stdin.isatty() and sys.stdout.isatty() else "-i"
        until_ready = f'while [ ! -e {_READY} ]; do sleep 0.05; done; cd "$0" && exec "$@"'
        sys.stdout.flush()
        return subprocess.call(
            [client, "exec", streams, *given, self.name, "bash", "-c", until_ready, step.cwd, *step.argv]
        )

    def _hold(self, job: Job) -> None:
        with contextlib.suppress(ExecutorDiedError):  # the shell has ended, and the container with it
            self.run(job)

    def kill(self) -> None:
        with contextlib.suppress(Exception):
            self._api.kill(self.name)

    def remove(self) -> None:
        """Removes what there is of it. One that has answered is left to end by itself first, which costs the engine less."""
        if self._channel is not None:
            with contextlib.suppress(OSError):
                self._channel.shutdown(socket.SHUT_WR)
                if select.select([self._channel], [], [], END_S)[0]:
                    time.sleep(NOTICE_S)
            self._channel.close()
        with contextlib.suppress(Exception):
            self._api.remove_container(self.name, force=True, v=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _connect(self) -> socket.socket:
        path = str(self.folder / "control" / "agent.sock")
        deadline, look = time.monotonic() + START_S, time.monotonic() + 0.5
        while True:
            channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                channel.connect(path)
                return channel
            except OSError as error:
                channel.close()
                now = time.monotonic()
                dead = now > look and not self._runs()
                look = now + 0.5 if now > look else look
                if now > deadline or dead:
                    raise ExecutorDiedError(f"the container's agent does not answer: {error}") from error
                time.sleep(0.01)

    def _runs(self) -> bool:
        """Whether the engine, if it answers, says that the container is running."""
        try:
            return bool(self._api.inspect_container(self.name)["State"]["Running"])
        except Exception:
            return False

    def _binds(self, mounts: tuple[Mount, ...]) -> list[str]:
        binds = [f"{INSIDE}:{GUARD}:ro", f"{self.folder}/control:/control:rw"]
        for directory in self._hosted:
            binds.append(f"{self.folder}/{directory}:/code/{directory}:{'ro' if directory == 'src' else 'rw'}")
        for mount in mounts:
            (self.folder / mount.source).mkdir(parents=True, exist_ok=True)
            read_only = mount.read_only or mount.source.split("/")[0] == "src"
            binds.append(f"{self.folder}/{mount.source}:{mount.target}:{'ro' if read_only else 'rw'}")
        return list(dict.fromkeys(binds))
