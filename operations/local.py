"""A whole deployment on this machine: Prefect server, work pool, deployments and worker, on loopback.

Everything lives in one folder: process ids, logs, Prefect's own data, and `env.sh` with the variables that a shell needs to talk
to this server. Server and worker are each held by a keeper (keep.py), so that a crash of one is a pause, not an end. Every process
carries `MARK` in its environment; by it `down` finds what a crashed worker left behind.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rtl_core.errors import ConfigError, InfrastructureError
from rtl_distill.operations import processes

MARK = "RTL_DISTILL_DEPLOYMENT"
POOL = "rtl-distill"
PARTS = ("server", "worker")
TRIES = 3


@dataclass(frozen=True)
class LocalDeployment:
    """Where a deployment lives and how it is reached.

    `home` is the working directory of every run, to which paths of a configuration are relative; `folder` holds what the
    deployment itself needs; `database` is Prefect's (an SQLAlchemy URL such as postgresql+asyncpg://...), None for SQLite.
    """

    home: Path
    folder: Path
    port: int = 4200
    database: str | None = None

    @property
    def mark(self) -> str:
        return str(self.folder.resolve())

    @property
    def api(self) -> str:
        """Of the server that runs, which may have been started with another port; else of the one to start."""
        pid = self.pid_of("server")
        running = processes.variable(pid, "PREFECT_API_URL") if pid else None
        return running or f"http://127.0.0.1:{self.port}/api"

    def settings(self) -> dict[str, str]:
        """The variables that server, worker, runs and a user's shell share. No secret is among them."""
        return {
            MARK: self.mark,
            "RTL_DISTILL_HOME": str(self.home.resolve()),
            "PREFECT_HOME": str((self.folder / "prefect").resolve()),
            "PREFECT_API_URL": self.api,
            # A server that is away for some minutes must not end a run: 2 + 4 + ... + 256 seconds of patience.
            "PREFECT_CLIENT_MAX_RETRIES": "8",
            "PREFECT_API_REQUEST_TIMEOUT": "180",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "DO_NOT_TRACK": "1",
        }

    def environment(self) -> dict[str, str]:
        """The environment of server and worker: the caller's, the settings, this Python's programs first."""
        bin_folder = str(Path(sys.executable).parent)
        return {
            **os.environ,
            **self.settings(),
            "PATH": f"{bin_folder}:{os.environ.get('PATH', '')}",
            # Where runs write their lines as well (tasks/logs.py): a run may outlive its worker, so not through its pipe.
            "RTL_DISTILL_LOG": str((self.folder / "worker.log").resolve()),
            # Leases of concurrency slots on disk: those in memory die with the server, which then ends every run that holds one.
            "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
            "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
            # A busy machine is slow, not broken: the defaults (5 and 10 s) then answer 500 or 503.
            "PREFECT_SERVER_DATABASE_CONNECTION_TIMEOUT": "60",
            "PREFECT_SERVER_DATABASE_TIMEOUT": "60",
            **({"PREFECT_SERVER_DATABASE_CONNECTION_URL": self.database} if self.database else {}),
        }

    def pid_of(self, part: str) -> int | None:
        """Process id of the keeper of `server` or `worker`, or None when it does not run."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            pid = int((self.folder / f"{part}.pid").read_text())
            if _is_marked(pid, self.mark):
                return pid
        return None


def up(deployment: LocalDeployment, prefect_file: Path, tell: Callable[[str], None]) -> None:
    """Bring up server, pool, deployments and worker; what already runs is left alone.

    Raises:
        ConfigError: the file of deployments is missing, or the port is taken by somebody else.
        InfrastructureError: a part did not come up; the message has the end of its log.
    """
    if not prefect_file.is_file():
        raise ConfigError(f"there is no {prefect_file}", "run this in the repository, or name the file with --file")
    deployment.folder.mkdir(parents=True, exist_ok=True)
    if deployment.pid_of("server") is None:
        if _answers(deployment.api):
            raise ConfigError(
                f"port {deployment.port} is taken by another Prefect server", "end it, or choose another with --port"
            )
        tell(f"server: starting on {deployment.api}")
        server = [sys.executable, "-m", "rtl_distill.operations.prefect_server", "start"]
        _keep(deployment, "server", [*server, "--host", "127.0.0.1", "--port", str(deployment.port)])
    _wait(deployment, "server", lambda: _answers(deployment.api))
    _prefect(deployment, ["work-pool", "create", POOL, "--type", "process", "--overwrite"])
    tell(f"work pool: {POOL}")
    _prefect(deployment, ["--no-prompt", "deploy", "--all", "--prefect-file", str(prefect_file.resolve())])
    tell(f"deployments: from {prefect_file}")
    if deployment.pid_of("worker") is None:
        worker = [_prefect_program(), "worker", "start", "--pool", POOL, "--name", "local"]
        _keep(deployment, "worker", [*worker, "--install-policy", "never"])
    log = deployment.folder / "worker.log"
    _wait(deployment, "worker", lambda: b"started!" in log.read_bytes())
    tell(f"worker: polling {POOL}")
    lines = "".join(
        f"export {name}={shlex.quote(value)}\n" for name, value in deployment.settings().items() if name != MARK
    )
    (deployment.folder / "env.sh").write_text(lines)


def down(deployment: LocalDeployment, tell: Callable[[str], None], grace_s: float = 30.0) -> list[int]:
    """End worker, runs and server, in this order: a run that ends tells the server so.

    Returns the ids of processes that had to be ended by force, ideally none.
    """
    mark = deployment.mark
    _end_part(deployment, "worker", tell, grace_s)
    # Runs that outlived their worker get the same chance to save their state as a cancelled one.
    runs = set(_marked(mark)) - _family(deployment.pid_of("server"))
    for pid in runs:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    _until(lambda: not any(_is_marked(pid, mark) for pid in runs), grace_s)
    _end_part(deployment, "server", tell, grace_s)
    _until(lambda: not list(_marked(mark)), 1.0)
    left = list(_marked(mark))
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    tell("down" if not left else f"down; {len(left)} processes were ended by force")
    return left


def _end_part(deployment: LocalDeployment, part: str, tell: Callable[[str], None], grace_s: float) -> None:
    pid = deployment.pid_of(part)
    if pid is None:
        return
    tell(f"{part}: ending")
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    _until(lambda: not _is_marked(pid, deployment.mark), grace_s)


def status(deployment: LocalDeployment) -> dict[str, str]:
    """Part -> how it is, in words."""
    found = {}
    for part in PARTS:
        pid = deployment.pid_of(part)
        found[part] = f"running (process {pid})" if pid else "not running"
    found["api"] = f"{deployment.api} {'answers' if _answers(deployment.api) else 'does not answer'}"
    return found


def _keep(deployment: LocalDeployment, part: str, kept_command: list[str]) -> None:
    command = [sys.executable, "-m", "rtl_distill.operations.keep"]
    command += ["--pid", str(deployment.folder / f"{part}.pid"), "--log", str(deployment.folder / f"{part}.log")]
    # A worker that crashes leaves its runs behind, and they go on.
    command += ["--spare-children", "--"] if part == "worker" else ["--"]
    log = deployment.folder / f"{part}.log"
    log.write_bytes(b"")
    with (deployment.folder / "keeper.log").open("ab") as keeper_log:
        subprocess.Popen(
            [*command, *kept_command],
            stdin=subprocess.DEVNULL, stdout=keeper_log, stderr=keeper_log,
            start_new_session=True, cwd=deployment.home, env=deployment.environment(),
        )  # fmt: skip


def _prefect(deployment: LocalDeployment, arguments: list[str]) -> None:
    """Run one of Prefect's commands, all of which may be repeated here; a server on a busy machine times out now and then."""
    for _ in range(TRIES):
        done = subprocess.run(
            [_prefect_program(), *arguments],
            cwd=deployment.home,
            env=deployment.environment(),
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode == 0:
            return
    raise InfrastructureError(f"`prefect {' '.join(arguments)}` failed:\n{(done.stdout + done.stderr)[-3000:]}")


def _prefect_program() -> str:
    beside = Path(sys.executable).parent / "prefect"
    program = str(beside) if beside.is_file() else shutil.which("prefect")
    if program is None:
        raise ConfigError("the program `prefect` is not installed", "make setup")
    return program


def _answers(api: str) -> bool:
    try:
        with urllib.request.urlopen(f"{api}/health", timeout=3) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


def _wait(deployment: LocalDeployment, part: str, ready: Callable[[], bool], patience_s: float = 900.0) -> None:
    if not _until(ready, patience_s):
        log = deployment.folder / f"{part}.log"
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:]) if log.is_file() else "(no log)"
        raise InfrastructureError(f"the {part} was not ready after {patience_s:.0f} s:\n{tail}", f"see {log}")


def _until(true: Callable[[], bool], patience_s: float) -> bool:
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        if true():
            return True
        time.sleep(0.2)
    return true()


def _is_marked(pid: int, mark: str) -> bool:
    """Whether that process lives and belongs to the deployment."""
    return processes.lives(pid) and processes.variable(pid, MARK) == mark


def _family(pid: int | None) -> set[int]:
    """A process and everything that it started, directly or not."""
    parents = {child: processes.parent(child) for child in processes.pids()}
    family = {pid} if pid is not None else set()
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return family


def _marked(mark: str) -> Iterator[int]:
    for pid in processes.pids():
        if pid != os.getpid() and _is_marked(pid, mark):
            yield pid
