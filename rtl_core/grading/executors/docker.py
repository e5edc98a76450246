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
import json
import os
import re
import shutil
import socket
import tempfile
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rtl_core.errors import InfrastructureError, ToolMissingError
from rtl_core.grading.executors.base import ExecutorDiedError, Job, JobResult, Mount, StepResult
from rtl_core.grading.executors.bubblewrap import INSIDE
from rtl_core.grading.executors.toolbox import warm_command
from rtl_core.grading.executors.wire import GUARD, Connection, job_message, patience, step_result
from rtl_core.grading.limits import Limits

IMAGE = "rtl-distill-sim"
LABEL = "rtl-distill.owner"
UID = 61000
START_S = 120.0
_TRIES = 3
_STANDARD_MOUNTS = (Mount("src", "/src"),)
_PROBE = """
import importlib.metadata as m, json, pathlib, re, subprocess, sys
import cocotb_tools.config, find_libpython
found = {"python": ".".join(map(str, sys.version_info[:3])), "cocotb": m.version("cocotb"), "pytest": m.version("pytest")}
for tool, flag in (("iverilog", "-V"), ("verilator", "--version"), ("yosys", "-V")):
    try:
        text = subprocess.run([tool, flag], capture_output=True, text=True).stdout
    except OSError:
        continue
    match = re.search(r"\\d+\\.\\d+(?:\\.\\d+)?", text)
    found[tool] = match[0] if match else "unknown"
older = list(pathlib.Path("/opt/cocotb1").glob("cocotb-*.dist-info"))
if older:
    found["cocotb1"] = older[0].name[7:-10]
modules = sorted({name.split(".")[0] for package in m.packages_distributions() for name in [package]})
print(json.dumps({"tools": found, "python": sys.executable, "libraries": str(cocotb_tools.config.libs_dir),
                  "libpython": find_libpython.find_libpython() or "", "modules": modules}))
"""


@dataclass(frozen=True)
class Image:
    """What the inside of an image is like, found out once."""

    digest: str
    python: str
    libraries: str
    libpython: str
    tools: dict[str, str]
    modules: frozenset[str]

    @property
    def cocotb1(self) -> str | None:
        return "/opt/cocotb1" if "cocotb1" in self.tools else None

    @property
    def prefixes(self) -> tuple[str, ...]:
        return ()

    def environment(self) -> dict[str, str]:
        return {
            "PATH": f"{Path(self.python).parent}:/usr/local/bin:/usr/bin:/bin",
            "HOME": "/code/rundir",
            "LANG": "C.UTF-8",
            "TMPDIR": "/tmp",
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "LIBPYTHON_LOC": self.libpython,
        }


class DockerExecutor:
    """Runs jobs in containers of an image. Thread-safe; keeps `ahead` containers waiting."""

    name = "docker"

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
        self._errors = docker.errors
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
        self._derived: dict[str, str] = {}
        self._folder = Path(
            tempfile.mkdtemp(prefix="rtl-distill-docker-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        )
        self._folder.chmod(0o711)
        self.sweep()
        self.image = self._look_into(image)
        self._ahead = ahead if ahead is not None else (os.cpu_count() or 1)
        self._waiting: list[_Container] = []
        self._kind = (self.image.digest, Limits())
        self._behind = ThreadPoolExecutor(max_workers=2, thread_name_prefix="containers")

    def tools(self) -> dict[str, str]:
        """The image by digest, and the versions in it."""
        return {"image": self.image.digest, **self.image.tools}

    def has_module(self, name: str) -> bool:
        """By its first part; `cocotb.runner`, which cocotb 2 has no more, is told apart."""
        return name.split(".")[0] in self.image.modules and name != "cocotb.runner"

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
            owner = folder / "owner"
            with contextlib.suppress(OSError, ValueError):
                pid, _, start = owner.read_text().partition(":")
                if _start_of(int(pid)) != start:
                    shutil.rmtree(folder, ignore_errors=True)
        (self._folder / "owner").write_text(f"{os.getpid()}:{_start_of(os.getpid())}")
        return removed

    def __enter__(self) -> DockerExecutor:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _take(self, job: Job) -> _Container:
        """A container that fits the job: one that waits, else a new one."""
        image = self._image_for(job)
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
        return container or _Container(self, image, job.limits, job.mounts)

    def _prepare(self, kind: tuple[str, Limits]) -> None:
        """Creates one container ahead, unless there are enough or others are wanted by now."""
        with self._lock:
            if self._closed or kind != self._kind or len(self._waiting) >= self._ahead:
                return
        try:
            container = _Container(self, kind[0], kind[1], _STANDARD_MOUNTS)
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

    def _look_into(self, name: str) -> Image:
        try:
            digest = self._api.inspect_image(name)["Id"]
        except self._errors.ImageNotFound as error:
            raise InfrastructureError(f"the image {name} is missing", "deployments/sim/build.sh") from error
        container = self._api.create_container(
            digest,
            entrypoint=["/opt/sim/bin/python3", "-c", _PROBE],
            labels={LABEL: self._owner},
            network_disabled=True,
            host_config=self._api.create_host_config(network_mode="none", cap_drop=["ALL"]),
        )["Id"]
        try:
            self._api.start(container)
            code = self._api.wait(container)["StatusCode"]
            output = self._api.logs(container, stderr=code != 0).decode()
        finally:
            self._remove(container)
        if code:
            raise InfrastructureError(
                f"the image {name} lacks what grading needs: {output.strip()[-300:]}", "deployments/sim/build.sh"
            )
        found = json.loads(output)
        return Image(
            digest, found["python"], found["libraries"], found["libpython"], found["tools"], frozenset(found["modules"])
        )

    def _image_for(self, job: Job) -> str:
        """The base image, or one derived from it by the harness' own Dockerfile where that adds something."""
        text = job.dockerfile or ""
        additions = [line for line in _instructions(text) if not self._has(line)]
        if not additions:
            return self.image.digest
        key = "\n".join(additions)
        with self._lock:
            known = self._derived.get(key)
        if known is None:
            known = self._build(additions)
            with self._lock:
                self._derived[key] = known
        return known

    def _has(self, instruction: str) -> bool:
        """Whether an instruction only pip-installs what the image has."""
        match = re.fullmatch(r"RUN\s+(?:python3?\s+-m\s+)?pip3?\s+install\s+(.+)", instruction, re.S)
        if not match:
            return False
        names = [re.split(r"[=<>~!\[]", word)[0] for word in match[1].split() if not word.startswith("-")]
        return all(name.replace("-", "_").lower() in {m.lower() for m in self.image.modules} for name in names)

    def _build(self, additions: list[str]) -> str:
        tag = f"{IMAGE}-derived:{uuid.uuid5(uuid.NAMESPACE_OID, self.image.digest + chr(10).join(additions)).hex[:16]}"
        with contextlib.suppress(self._errors.ImageNotFound):
            return self._api.inspect_image(tag)["Id"]
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        (folder / "Dockerfile").write_text("\n".join([f"FROM {self.image.digest}", *additions]) + "\n")
        try:
            log = list(self._api.build(path=str(folder), tag=tag, network_mode="host", rm=True, decode=True))
            failed = next((line["error"] for line in log if "error" in line), None)
        except self._errors.APIError as error:
            failed = str(error)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if failed:
            raise InfrastructureError(
                f"the harness' own additions to the image cannot be installed: {failed.strip()[-200:]}",
                "check the network",
            )
        return self._api.inspect_image(tag)["Id"]

    def _out_of_memory(self, container: _Container) -> bool:
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


class _Container:
    """One container with its agent waiting; it serves one job."""

    def __init__(self, executor: DockerExecutor, image: str, limits: Limits, mounts: tuple[Mount, ...]) -> None:
        self._executor = executor
        self.name = f"rtl-distill-{uuid.uuid4().hex[:16]}"
        self.folder = executor._folder / self.name
        self._hosted = tuple(dict.fromkeys(["src", *(mount.source.split("/")[0] for mount in mounts)]))
        for directory in ("control", *self._hosted):
            (self.folder / directory).mkdir(parents=True)
            (self.folder / directory).chmod(0o777 if directory != "src" else 0o755)
        api, inside = executor._api, executor.image
        command = warm_command("vvp", inside.libraries)
        environment = {
            **inside.environment(),
            "PYTHONPATH": f"{GUARD}/warm:{GUARD}:{GUARD}/lib",
            "PYGPI_PYTHON_BIN": inside.python,
            "RTL_CONTROL_SOCKET": "/control/agent.sock",
        }
        host = api.create_host_config(
            binds=self._binds(mounts),
            tmpfs=_tmpfs(limits),
            network_mode="none",
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            read_only=True,
            mem_limit=(limits.memory_mb + limits.disk_mb) << 20,
            memswap_limit=(limits.memory_mb + limits.disk_mb) << 20,
            pids_limit=limits.processes + 16,
            nano_cpus=2_000_000_000,
            log_config={"Type": "none", "Config": {}},
        )
        labels = {LABEL: executor._owner, "rtl.flow_run": executor._flow_run}
        try:
            api.create_container(
                image,
                entrypoint=command,
                name=self.name,
                user=f"{UID}:{UID}",
                environment=environment,
                working_dir="/",
                labels=labels,
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
            message = {**job_message(job, 0, self._executor.image), "hosted": list(self._hosted)}
            return connection.ask(message, patience(job))
        except ExecutorDiedError:
            self.kill()
            raise
        finally:
            channel.close()

    def kill(self) -> None:
        with contextlib.suppress(Exception):
            self._executor._api.kill(self.name)

    def remove(self) -> None:
        self._executor._remove(self.name)
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
            return bool(self._executor._api.inspect_container(self.name)["State"]["Running"])
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


def _instructions(dockerfile: str) -> list[str]:
    """What a harness' Dockerfile does after FROM, one instruction a line, comments left out."""
    text = re.sub(r"\\\s*\n", " ", re.sub(r"^\s*#.*$", "", dockerfile, flags=re.M))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return [line for line in lines if not re.match(r"FROM\b|CMD\b|ENTRYPOINT\b|WORKDIR\b|LABEL\b|EXPOSE\b", line, re.I)]


def _start_of(pid: int) -> str:
    """When a process of this host started, in clock ticks; empty when there is none."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[19]
    except OSError:
        return ""
