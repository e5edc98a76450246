"""A Prefect server for one command, where no other is configured: started before anything heavy is imported, and gone with the command.

Prefect starts one itself when a flow is first called, and waits for it (5 CPU-seconds, 10 with a new database). This one comes up while
the command imports the flow. It listens on a socket that it inherits, so a client that is early waits in its queue. It ends
when its standard input does, however the command ended, and after Prefect's client has delivered what it still holds. SIGTERM and
SIGINT do not end it: a service manager sends them to every process of a command, and the command still has to tell how it ended.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import tomllib
from collections.abc import Mapping
from pathlib import Path

from rtl_distill.operations.prefect_server import collect_garbage_apart

END_S = 5.0


def start_temporary_server() -> None:
    """Start a server for this process and name it to Prefect, unless one is configured or Prefect is in use already."""
    if "prefect" in sys.modules or names_server(os.environ, Path.cwd()):
        return
    _ensure_home()
    server, os.environ["PREFECT_API_URL"] = start(server_environment())
    # Before Prefect is imported, so that its own handlers run before this one.
    atexit.register(_end, server)


def start(environment: Mapping[str, str]) -> tuple[subprocess.Popen[bytes], str]:
    """Start a server; returns its process and the URL of its API. A request that comes before it is up waits."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        command = [sys.executable, "-m", "rtl_distill.operations.temporary_server", str(listener.fileno())]
        # In a session of its own: what a terminal sends is for the command.
        server = subprocess.Popen(
            command, stdin=subprocess.PIPE, pass_fds=[listener.fileno()], start_new_session=True, env=environment
        )
        return server, f"http://127.0.0.1:{listener.getsockname()[1]}/api"


def names_server(environment: Mapping[str, str], folder: Path) -> bool:
    """Whether a server may be named by a variable, by Prefect's profiles, or by a file that Prefect reads in the working directory."""
    if environment.get("PREFECT_API_URL"):
        return True
    profiles = Path(environment.get("PREFECT_PROFILES_PATH") or _home(environment) / "profiles.toml")
    if any("PREFECT_API_URL" in _text(file) for file in (profiles, folder / ".env")):
        return True
    with contextlib.suppress(tomllib.TOMLDecodeError):  # Prefect says what is wrong with it
        settings = tomllib.loads(_text(folder / "prefect.toml"))
        project = tomllib.loads(_text(folder / "pyproject.toml")).get("tool", {}).get("prefect", {})
        return any("url" in section.get("api", {}) for section in (settings, project))
    return True


def _home(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("PREFECT_HOME") or Path.home() / ".prefect")


def _ensure_home() -> None:
    """Give Prefect a temporary folder where its own cannot be written (a read-only home); it is removed when the command ends."""
    home = _home(os.environ)
    with contextlib.suppress(OSError):
        home.mkdir(parents=True, exist_ok=True)
    if not os.access(home, os.W_OK):
        os.environ["PREFECT_HOME"] = tempfile.mkdtemp(prefix="rtl-distill-prefect-")
        atexit.register(shutil.rmtree, os.environ["PREFECT_HOME"], ignore_errors=True)


def _text(file: Path) -> str:
    return file.read_text(errors="replace") if file.is_file() else ""


def server_environment() -> dict[str, str]:
    """The server's environment, without pages and without what no run uses: records of tasks (33 ms of CPU each) and Prefect's stored
    configurations, "blocks" (a second of CPU at a start)."""
    services = ("TASK_RUN_RECORDER", "EVENT_PERSISTER", "TRIGGERS")
    return {
        **{f"PREFECT_SERVER_SERVICES_{service}_ENABLED": "false" for service in services},
        **os.environ,
        "PREFECT_API_BLOCKS_REGISTER_ON_START": "false",
        "PREFECT_MEMOIZE_BLOCK_AUTO_REGISTRATION": "false",
        "PREFECT_UI_ENABLED": "false",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
    }


def _end(server: subprocess.Popen[bytes]) -> None:
    try:
        server.communicate(timeout=END_S)  # closes its standard input
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def serve(listener: socket.socket) -> None:
    """Serve Prefect's API on a listening socket until standard input ends."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    import uvicorn
    from prefect.server.api.server import create_app

    collect_garbage_apart()
    app = create_app(ephemeral=True, final=True)
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)  # connections that are cut when the server ends
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on"))

    def end_with_command() -> None:
        sys.stdin.buffer.read()
        server.should_exit = True

    threading.Thread(target=end_with_command, daemon=True).start()
    server.run(sockets=[listener])


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
