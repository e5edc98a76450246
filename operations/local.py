"""A complete deployment on this machine: Prefect server, work pool, deployments and worker, on loopback.

Everything is in one folder: process ids, logs, Prefect's data, and `env.sh` with the variables that a shell
needs for this server. Server and worker each run under a keeper (keep.py), which restarts them after a
crash. Every process has `MARK` in its environment, so that `down` finds processes that a crashed worker
left behind.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from rtl_core.errors import ConfigError, InfrastructureError
from rtl_core.types.tell import Tell
from rtl_distill.operations.loopback import PATIENT, QUIET, past_proxy

MARK = "RTL_DISTILL_DEPLOYMENT"
POOL = "rtl-distill"
ATTEMPTS = 3
READY_S, GRACE_S = 900.0, 30.0
"""Seconds within which a part must be ready, and within which it must end by itself."""


@dataclass(frozen=True)
class LocalDeployment:
    """Location and address of a deployment."""

    home: Path
    """Working directory of every run; relative paths of a configuration start here."""
    folder: Path
    """Files of the deployment itself."""
    port: int = 4200
    database: str | None = None
    """SQLAlchemy URL of Prefect's database, such as postgresql+asyncpg://...; None for SQLite."""

    @property
    def mark(self) -> str:
        return str(self.folder.resolve())

    @property
    def api(self) -> str:
        """API URL of the running server, which may use another port, or else of the server to start."""
        pid = self.pid_of("server")
        running = _environment(pid).get("PREFECT_API_URL") if pid else None
        return running or f"http://127.0.0.1:{self.port}/api"

    def settings(self) -> dict[str, str]:
        """Environment variables shared by server, worker, runs and the user's shell; none is secret."""
        return {
            MARK: self.mark,
            "RTL_DISTILL_HOME": str(self.home.resolve()),
            "PREFECT_HOME": f"{self.mark}/prefect",
            "PREFECT_PROFILES_PATH": f"{self.mark}/prefect/profiles.toml",
            "PREFECT_API_URL": self.api,
            "PREFECT_API_REQUEST_TIMEOUT": "180",
            **PATIENT,
            **QUIET,
            **past_proxy(os.environ),
        }

    def environment(self) -> dict[str, str]:
        """Environment of server and worker: the caller's, the settings, and this Python's programs first in PATH."""
        bin_folder = str(Path(sys.executable).parent)
        return {
            **os.environ,
            **self.settings(),
            "PATH": f"{bin_folder}:{os.environ.get('PATH', '')}",
            # Runs also write their log lines to this file (tasks/logs.py), because a run may outlive its worker's pipe.
            "RTL_DISTILL_LOG": str((self.folder / "worker.log").resolve()),
            # Keep concurrency leases on disk: leases in memory are lost with the server, which then ends
            # every run that holds one.
            "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
            "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
            # With the default timeouts (5 and 10 s), the server of a busy machine responds with 500 or 503.
            "PREFECT_SERVER_DATABASE_CONNECTION_TIMEOUT": "60",
            "PREFECT_SERVER_DATABASE_TIMEOUT": "60",
            **(
                {"PREFECT_SERVER_DATABASE_CONNECTION_URL": self.database}
                if self.database
                else {}
            ),
        }

    def pid_of(self, part: str) -> int | None:
        """Process id of the keeper of `server` or `worker`, or None if it is not running."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            pid = int((self.folder / f"{part}.pid").read_text())
            if _is_marked(pid, self.mark):
                return pid
        return None


def up(deployment: LocalDeployment, prefect_file: Path, tell: Tell) -> None:
    """Start server, pool, deployments and worker, unless they are already running.

    Raises:
        ConfigError: the deployment file is missing, or another program uses the port.
        InfrastructureError: a part did not start; the message has the end of its log.
    """
    if not prefect_file.is_file():
        raise ConfigError(
            f"there is no {prefect_file}",
            "run this in the repository, or name the file with --file",
        )
    deployment.folder.mkdir(parents=True, exist_ok=True)
    if deployment.pid_of("server") is None:
        try:
            socket.create_server(("127.0.0.1", deployment.port)).close()
        except OSError as error:
            message = f"port {deployment.port} cannot be used: {os.strerror(error.errno or 0)}"
            raise ConfigError(
                message, "stop the program that uses it, or choose another port with --port"
            ) from error
        tell(f"server: starting on {deployment.api}")
        server = [sys.executable, "-m", "rtl_distill.operations.prefect_server", "start"]
        _keep(
            deployment,
            "server",
            [*server, "--host", "127.0.0.1", "--port", str(deployment.port)],
        )
    _wait(deployment, "server", lambda: _answers(deployment.api))
    _prefect(deployment, ["work-pool", "create", POOL, "--type", "process", "--overwrite"])
    tell(f"work pool: {POOL}")
    _prefect(
        deployment,
        ["--no-prompt", "deploy", "--all", "--prefect-file", str(prefect_file.resolve())],
    )
    tell(f"deployments: from {prefect_file}")
    if deployment.pid_of("worker") is None:
        worker = [_prefect_program(), "worker", "start", "--pool", POOL, "--name", "local"]
        _keep(deployment, "worker", [*worker, "--install-policy", "never"])
    log = deployment.folder / "worker.log"
    _wait(deployment, "worker", lambda: b"started!" in log.read_bytes())
    tell(f"worker: polling {POOL}")
    lines = [
        f"export {name}={shlex.quote(value)}\n"
        for name, value in deployment.settings().items()
        if name != MARK
    ]
    (deployment.folder / "env.sh").write_text("".join(lines))


def down(deployment: LocalDeployment, tell: Tell) -> list[int]:
    """Stop worker, runs and server, in this order, so that ending runs can still report to the server.

    Returns the ids of processes that had to be killed, ideally none.
    """
    mark = deployment.mark
    _stop_part(deployment, "worker", tell)
    # Runs that outlived their worker may save their state, like cancelled ones.
    runs = set(_marked(mark)) - _family(deployment.pid_of("server"))
    _kill(runs, signal.SIGTERM)
    _wait_until(lambda: not any(_is_marked(pid, mark) for pid in runs), GRACE_S)
    _stop_part(deployment, "server", tell)
    _wait_until(lambda: not _marked(mark), 1.0)
    survivors = _marked(mark)
    _kill(survivors, signal.SIGKILL)
    tell(f"down; {len(survivors)} processes had to be killed" if survivors else "down")
    return survivors


def _stop_part(deployment: LocalDeployment, part: str, tell: Tell) -> None:
    if (pid := deployment.pid_of(part)) is not None:
        tell(f"{part}: stopping")
        _kill([pid], signal.SIGTERM)
        _wait_until(lambda: not _is_marked(pid, deployment.mark), GRACE_S)


def _kill(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def status(deployment: LocalDeployment) -> dict[str, str]:
    """Mapping of part to its state in words."""
    pids = {part: deployment.pid_of(part) for part in ("server", "worker")}
    states = {
        part: f"running (kept up by process {pid})" if pid else "not running"
        for part, pid in pids.items()
    }
    answers = "answers" if _answers(deployment.api) else "does not answer"
    return {**states, "api": f"{deployment.api} {answers}"}


def _keep(deployment: LocalDeployment, part: str, kept_command: list[str]) -> None:
    log = deployment.folder / f"{part}.log"
    log.write_bytes(b"")
    keeper = [
        sys.executable,
        "-m",
        "rtl_distill.operations.keep",
        str(deployment.folder / f"{part}.pid"),
        str(log),
    ]
    with (deployment.folder / "keeper.log").open("ab") as keeper_log:
        subprocess.Popen(
            [*keeper, *kept_command],
            stdin=subprocess.DEVNULL,
            stdout=keeper_log,
            stderr=keeper_log,
            start_new_session=True,
            cwd=deployment.home,
            env=deployment.environment(),
        )


def _prefect(deployment: LocalDeployment, arguments: list[str]) -> None:
    """Run an idempotent Prefect command, with retries, because the server of a busy machine may time out."""
    for _ in range(ATTEMPTS):
        process = subprocess.run(
            [_prefect_program(), *arguments],
            cwd=deployment.home,
            env=deployment.environment(),
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        if process.returncode == 0:
            return
    raise InfrastructureError(
        f"`prefect {' '.join(arguments)}` failed:\n{(process.stdout + process.stderr)[-3000:]}"
    )


def _prefect_program() -> str:
    own = Path(sys.executable).parent / "prefect"
    program = str(own) if own.is_file() else shutil.which("prefect")
    if program is None:
        raise ConfigError("the program `prefect` is not installed", "make setup")
    return program


def _answers(api: str) -> bool:
    try:
        # No proxy to loopback.
        return httpx.get(f"{api}/health", timeout=3, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def _wait(deployment: LocalDeployment, part: str, ready: Callable[[], bool]) -> None:
    if not _wait_until(ready, READY_S):
        log = deployment.folder / f"{part}.log"
        tail = "(no log)"
        if log.is_file():
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise InfrastructureError(
            f"the {part} was not ready after {READY_S:.0f} s:\n{tail}", f"see {log}"
        )


def _wait_until(condition: Callable[[], bool], patience_s: float) -> bool:
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.2)
    return condition()


def _environment(pid: int) -> dict[str, str]:
    """Environment of a process; empty if the process has ended or is another user's."""
    with contextlib.suppress(psutil.Error):
        return dict(psutil.Process(pid).environ())
    return {}


def _is_marked(pid: int, mark: str) -> bool:
    return _environment(pid).get(MARK) == mark


def _family(pid: int | None) -> set[int]:
    """A process and all its descendants."""
    with contextlib.suppress(psutil.NoSuchProcess):
        if pid is not None:
            children = psutil.Process(pid).children(recursive=True)
            return {pid, *(child.pid for child in children)}
    return set()


def _marked(mark: str) -> list[int]:
    return [pid for pid in psutil.pids() if pid != os.getpid() and _is_marked(pid, mark)]
