"""One container of the Docker executor, with its agent waiting as process 1; it serves one job."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rtl_core.errors import InfrastructureError
from rtl_core.grading.executors.base import ExecutorDiedError, Job, Mount
from rtl_core.grading.executors.bubblewrap import INSIDE
from rtl_core.grading.executors.probe import Inside
from rtl_core.grading.executors.toolbox import warm_command
from rtl_core.grading.executors.wire import GUARD, Connection, job_message, patience
from rtl_core.grading.limits import Limits

UID = 61000
START_S = 120.0
CPUS = 2
SPARE_MB = 1024


class Container:
    """Created and started at once; `run` serves its one job."""

    def __init__(
        self,
        api: Any,
        folder: Path,
        image: str,
        inside: Inside,
        limits: Limits,
        mounts: tuple[Mount, ...],
        labels: Mapping[str, str],
    ) -> None:
        """`folder` holds the directories that host and container share. Raises InfrastructureError when the engine refuses."""
        self._api, self._inside = api, inside
        self.name = f"rtl-distill-{uuid.uuid4().hex[:16]}"
        self.folder = folder / self.name
        self._hosted = tuple(dict.fromkeys(["src", *(mount.source.split("/")[0] for mount in mounts)]))
        for directory in ("control", *self._hosted):
            (self.folder / directory).mkdir(parents=True)
            (self.folder / directory).chmod(0o777 if directory != "src" else 0o755)
        command = warm_command("vvp", inside.libraries)
        environment = {
            **inside.environment(),
            "PYTHONPATH": f"{GUARD}/warm:{GUARD}:{GUARD}/lib",
            "PYGPI_PYTHON_BIN": inside.python,
            "RTL_CONTROL_SOCKET": "/control/agent.sock",
        }
        # The agent watches the limit itself; the kernel's own, at which everything inside crawls, stands well behind it.
        memory = (limits.memory_mb + limits.disk_mb + SPARE_MB) << 20
        host = api.create_host_config(
            binds=self._binds(mounts),
            tmpfs=_tmpfs(limits),
            network_mode="none",
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            read_only=True,
            mem_limit=memory,
            memswap_limit=memory,
            pids_limit=limits.processes + 16,
            nano_cpus=min(CPUS, os.cpu_count() or 1) * 1_000_000_000,
            log_config={"Type": "none", "Config": {}},
        )
        try:
            api.create_container(
                image,
                entrypoint=command,
                name=self.name,
                user=f"{UID}:{UID}",
                environment=environment,
                working_dir="/",
                labels=dict(labels),
                network_disabled=True,
                host_config=host,
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
        channel = self._connect()
        try:
            connection = Connection(channel)
            connection.receive(START_S)
            message = {**job_message(job, 0, self._inside), "hosted": list(self._hosted)}
            return connection.ask(message, patience(job))
        except ExecutorDiedError:
            self.kill()
            raise
        finally:
            channel.close()

    def kill(self) -> None:
        with contextlib.suppress(Exception):
            self._api.kill(self.name)

    def remove(self) -> None:
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


def _tmpfs(limits: Limits) -> dict[str, str]:
    own = f"rw,exec,nosuid,nodev,uid={UID},gid={UID},mode=0755"
    return {
        "/code": f"{own},size={limits.disk_mb}m",
        "/tmp": f"rw,exec,nosuid,nodev,mode=1777,size={limits.disk_mb}m",
        "/rundir": f"{own},size=16m",
        "/dev/shm": f"rw,nosuid,nodev,mode=1777,size={min(64, limits.disk_mb)}m",
    }
