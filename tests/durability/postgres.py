"""A temporary Postgres server: Debian's `postgresql` package, a fresh cluster on a loopback port."""

import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path


class Postgres:
    """Within `with`: a cluster with an empty database `prefect`. `url` is its address for Prefect."""

    def __enter__(self):
        # Debian keeps initdb and pg_ctl out of PATH.
        self._bin = max(
            Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name)
        )
        # Postgres refuses to run as root. In a folder of its own its user need not get through anybody else's.
        self._as = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}
        self._folder = Path(tempfile.mkdtemp(prefix="rtl-distill-postgres-"))
        self._data = str(self._folder / "data")
        if self._as:
            shutil.chown(self._folder, "postgres", "postgres")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = str(free.getsockname()[1])
        self._run(
            "initdb",
            "--auth=trust",
            "--username=prefect",
            "--encoding=UTF8",
            "--locale=C",
            "-D",
            self._data,
        )
        self._start()
        self._run("createdb", "-h", "127.0.0.1", "-p", self._port, "-U", "prefect", "prefect")
        self.url = f"postgresql+asyncpg://prefect@127.0.0.1:{self._port}/prefect"
        return self

    def __exit__(self, *_):
        self._control("-m", "fast", "stop")
        shutil.rmtree(self._folder)

    def crash(self):
        """Stop it without a checkpoint, like a power cut, and start it again; it recovers from its log."""
        self._control("-m", "immediate", "stop")
        self._start()

    def query(self, sql):
        """The rows of a query as psql prints them, without decoration."""
        command = [
            self._bin / "psql",
            "-h",
            "127.0.0.1",
            "-p",
            self._port,
            "-U",
            "prefect",
            "-Atc",
            sql,
            "prefect",
        ]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, cwd="/"
        ).stdout.strip()

    def _start(self):
        options = f"-c listen_addresses=127.0.0.1 -c port={self._port} -c unix_socket_directories={self._data}"
        self._control("-l", str(self._folder / "log"), "-o", options, "start")

    def _control(self, *arguments):
        self._run("pg_ctl", "-D", self._data, "-w", "-t", "300", *arguments)

    def _run(self, program, *arguments):
        # A session of its own, so that Ctrl-C at the terminal does not reach the database.
        subprocess.run(
            [self._bin / program, *arguments], check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
            start_new_session=True, cwd="/", **self._as,
        )  # fmt: skip
