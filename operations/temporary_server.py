"""A temporary Prefect server for one command, used when no other server is configured. It ends with the command.

Server and command have a home of their own, which ends with them, because another Prefect may have migrated
the database in the user's. The first server of a Prefect version leaves a prepared database in the user's
cache; the others start on a copy of it.

Prefect would start its own server at the first flow call, and wait for it (5 CPU-seconds, 10 with a new
database). This one starts while the command imports the flow. It listens on an inherited socket, so early
requests wait in the socket's queue. It ends at the end of its standard input, however the command ended,
after Prefect's client has delivered its remaining events. It ignores SIGTERM and SIGINT, which a service
manager sends to every process of a command, because the command still has to report its final state.
"""

from __future__ import annotations

import asyncio
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
from importlib.metadata import version
from pathlib import Path

from rtl_distill.operations.loopback import QUIET
from rtl_distill.operations.prefect_server import prepare_server

END_S = 5.0


def start_temporary_server() -> None:
    """Start a server for this process and set PREFECT_API_URL, unless a server is configured or Prefect is
    already imported."""
    if "prefect" in sys.modules or names_server(os.environ, Path.cwd()):
        return
    os.environ["PREFECT_HOME"] = tempfile.mkdtemp(prefix="rtl-distill-prefect-")
    for name in ("PREFECT_PROFILE", "PREFECT_PROFILES_PATH"):  # of the user's home
        os.environ.pop(name, None)
    server, os.environ["PREFECT_API_URL"] = start(server_environment())
    # Registered before Prefect is imported, so that Prefect's own handlers run before this one.
    atexit.register(_end, server)


def start(environment: Mapping[str, str]) -> tuple[subprocess.Popen[bytes], str]:
    """Start a server, and return its process and API URL. Requests wait until it is ready."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        command = [
            sys.executable,
            "-m",
            "rtl_distill.operations.temporary_server",
            str(listener.fileno()),
        ]
        # In a new session, so that it does not receive the terminal's signals.
        server = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            pass_fds=[listener.fileno()],
            start_new_session=True,
            env=environment,
        )
        return server, f"http://127.0.0.1:{listener.getsockname()[1]}/api"


def names_server(environment: Mapping[str, str], folder: Path) -> bool:
    """Whether a variable, Prefect's profiles, or a settings file in the working directory may name a server."""
    if environment.get("PREFECT_API_URL"):
        return True
    home = Path(environment.get("PREFECT_HOME") or Path.home() / ".prefect")
    profiles = Path(environment.get("PREFECT_PROFILES_PATH") or home / "profiles.toml")
    if any("PREFECT_API_URL" in _text(file) for file in (profiles, folder / ".env")):
        return True
    with contextlib.suppress(tomllib.TOMLDecodeError):  # Prefect reports the error
        settings = tomllib.loads(_text(folder / "prefect.toml"))
        project = (
            tomllib.loads(_text(folder / "pyproject.toml")).get("tool", {}).get("prefect", {})
        )
        return any("url" in section.get("api", {}) for section in (settings, project))
    return True


def _text(file: Path) -> str:
    return file.read_text(errors="replace") if file.is_file() else ""


def server_environment() -> dict[str, str]:
    """Environment of the server, without UI, task-run records (33 ms of CPU each) and blocks (a second of
    CPU at startup)."""
    services = ("TASK_RUN_RECORDER", "EVENT_PERSISTER", "TRIGGERS")
    return {
        **{f"PREFECT_SERVER_SERVICES_{service}_ENABLED": "false" for service in services},
        **os.environ,
        "PREFECT_API_BLOCKS_REGISTER_ON_START": "false",
        "PREFECT_MEMOIZE_BLOCK_AUTO_REGISTRATION": "false",
        "PREFECT_UI_ENABLED": "false",
        **QUIET,
    }


def _end(server: subprocess.Popen[bytes]) -> None:
    try:
        server.communicate(timeout=END_S)  # closes its standard input
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def _prepare_database(database: Path) -> None:
    """Make a database of this version of Prefect. All of Prefect's migrations take seconds, so the result is kept."""
    os.environ["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = f"sqlite+aiosqlite:///{database}"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    prepared = cache / "rtl-distill" / f"prefect-{version('prefect')}.db"
    if prepared.is_file():
        shutil.copyfile(prepared, database)
        return
    from prefect.server.database import provide_database_interface

    asyncio.run(provide_database_interface().create_db())
    with contextlib.suppress(OSError):  # a read-only cache
        prepared.parent.mkdir(parents=True, exist_ok=True)
        fresh = shutil.copyfile(database, f"{prepared}.{os.getpid()}")
        os.replace(fresh, prepared)


def serve(listener: socket.socket) -> None:
    """Serve Prefect's API on a listening socket until standard input ends; then delete the home."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    home = Path(os.environ["PREFECT_HOME"])
    _prepare_database(home / "prefect.db")
    import uvicorn
    from prefect.server.api.server import create_app

    prepare_server()
    app = create_app(ephemeral=True, final=True)
    logging.getLogger("sqlalchemy.pool").setLevel(
        logging.CRITICAL
    )  # connections are cut when the server ends
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on"))

    def end_with_command() -> None:
        sys.stdin.buffer.read()
        server.should_exit = True

    threading.Thread(target=end_with_command, daemon=True).start()
    server.run(sockets=[listener])
    shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
