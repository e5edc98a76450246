"""A temporary Postgres server: Debian's `postgresql` package, a fresh cluster on a loopback port."""

import os
import shutil
import socket
import subprocess
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from rtl_core.errors import ToolMissingError


class Postgres(AbstractContextManager["Postgres"]):
    """Starts a cluster with an empty database `prefect`, and deletes it at the end; `url` is its address for Prefect."""

    def __init__(self) -> None:
        self._bin = _programs()
        # Postgres refuses to run as root.
        self._as: dict[str, Any] = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}
        # A folder of its own: its user need not get through anybody else's.
        self._folder = Path(tempfile.mkdtemp(prefix="rtl-distill-postgres-"))
        self._data, self._log = self._folder / "data", self._folder / "log"
        if self._as:
            shutil.chown(self._folder, "postgres", "postgres")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._run(
            "initdb", "--auth=trust", "--username=prefect", "--encoding=UTF8", "--locale=C", "-D", str(self._data)
        )
        self._start()
        try:
            self._run("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "prefect", "prefect")
        except BaseException:
            self.stop()
            raise
        self.url = f"postgresql+asyncpg://prefect@127.0.0.1:{self.port}/prefect"

    def crash(self) -> None:
        """Stop it without a checkpoint, like a power cut, and start it again; it recovers from its log."""
        self._run("pg_ctl", "-D", str(self._data), "-m", "immediate", "-w", "-t", "300", "stop")
        self._start()

    def query(self, sql: str) -> str:
        """Return the rows of a query as psql prints them, without decoration."""
        command = [self._bin / "psql", "-h", "127.0.0.1", "-p", str(self.port), "-U", "prefect", "-Atc", sql, "prefect"]
        return subprocess.run(command, check=True, capture_output=True, text=True, cwd="/").stdout.strip()

    def stop(self) -> None:
        self._run("pg_ctl", "-D", str(self._data), "-m", "fast", "-w", "-t", "300", "stop")
        shutil.rmtree(self._folder)

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self) -> None:
        options = f"-c listen_addresses=127.0.0.1 -c port={self.port} -c unix_socket_directories={self._data}"
        self._run("pg_ctl", "-D", str(self._data), "-l", str(self._log), "-w", "-t", "300", "-o", options, "start")

    def _run(self, program: str, *arguments: str) -> None:
        # A session of its own, so that Ctrl-C at the terminal does not reach the database.
        subprocess.run(
            [str(self._bin / program), *arguments], check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
            start_new_session=True, cwd="/", **self._as,
        )  # fmt: skip


def _programs() -> Path:
    """The folder of initdb and pg_ctl; Debian keeps them out of PATH."""
    for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: -float(path.parent.name)):
        if (folder / "initdb").is_file():
            return folder
    found = shutil.which("initdb")
    if found is None:
        raise ToolMissingError("Postgres is not installed: there is no initdb", "apt-get install postgresql")
    return Path(found).resolve().parent
