"""The temporary Prefect server of a command: started only if no other is configured, and ended with the command."""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from types import SimpleNamespace

import httpx
import psutil
import pytest

from rtl_distill.operations.temporary_server import (
    _prepare_database,
    names_server,
    server_environment,
    start,
)

COMMAND = """\
import os, sys
from rtl_distill.operations.temporary_server import start_temporary_server
start_temporary_server()
print(os.environ["PREFECT_API_URL"], flush=True)
sys.stdin.read()
"""


EPHEMERAL = (
    'active = "ephemeral"\n[profiles.ephemeral]\nPREFECT_SERVER_ALLOW_EPHEMERAL_MODE = "true"\n'
)


@pytest.mark.parametrize(
    ("file", "text", "named"),
    [
        ("profiles.toml", EPHEMERAL, False),
        (
            "profiles.toml",
            '[profiles.local]\nPREFECT_API_URL = "http://127.0.0.1:4200/api"\n',
            True,
        ),
        ("prefect.toml", '[api]\nurl = "http://127.0.0.1:4200/api"\n', True),
        ("pyproject.toml", '[tool.prefect.api]\nurl="http://127.0.0.1:4200/api"\n', True),
        ("pyproject.toml", '[project]\nname = "x"\n[project.urls]\nurl = "https://x"\n', False),
        (".env", "PREFECT_API_URL=http://127.0.0.1:4200/api\n", True),
    ],
)
def test_a_server_configured_anywhere_is_left_to_prefect(tmp_path, file, text, named):
    (tmp_path / file).write_text(text)
    assert names_server({"PREFECT_HOME": str(tmp_path)}, tmp_path) is named
    assert names_server(
        {"PREFECT_HOME": str(tmp_path / "none"), "PREFECT_API_URL": "http://x/api"}, tmp_path
    )


@pytest.mark.slow
def test_a_command_leaves_the_users_home_its_database_and_its_profiles_alone(tmp_path):
    """Another Prefect may have migrated that database, in the default home or wherever variables say."""
    home = tmp_path / ".prefect"
    home.mkdir()
    (home / "profiles.toml").write_text(
        'active = "mine"\n[profiles.mine]\nPREFECT_API_KEY = "x"\n'
    )
    with contextlib.closing(sqlite3.connect(home / "prefect.db")) as database:
        database.execute("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)")
        database.execute("INSERT INTO alembic_version VALUES ('fffffffffffe')")
        database.commit()
    foreign = {path: path.read_bytes() for path in home.iterdir()}
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"},
        "HOME": str(tmp_path),
        "PREFECT_HOME": str(home),
        "PREFECT_PROFILE": "mine",
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{home}/prefect.db",
    }
    command = COMMAND.replace(
        "sys.stdin.read()",
        "import httpx; print(httpx.get(os.environ['PREFECT_API_URL'] + '/health', timeout=300).json()); print(os.environ['PREFECT_HOME'])",
    )
    done = subprocess.run(
        [sys.executable, "-c", command],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    _, healthy, own = done.stdout.splitlines()
    assert (healthy, done.stderr) == ("True", "")
    assert own != str(home)
    assert not os.path.exists(own), "it ends with the command"
    assert {path: path.read_bytes() for path in home.iterdir()} == foreign


def test_the_prepared_database_is_copied_and_a_cache_that_cannot_be_written_is_no_error(
    tmp_path, monkeypatch
):
    made = []

    async def create_db():
        made.append("all migrations")
        (tmp_path / "first.db").write_text("tables")

    monkeypatch.setattr(
        "prefect.server.database.provide_database_interface",
        lambda: SimpleNamespace(create_db=create_db),
    )
    monkeypatch.setenv("PREFECT_SERVER_DATABASE_CONNECTION_URL", "restored after the test")
    for cache in ("/proc/none", str(tmp_path / "cache")):
        monkeypatch.setenv("XDG_CACHE_HOME", cache)
        _prepare_database(tmp_path / "first.db")
    _prepare_database(tmp_path / "second.db")
    assert (tmp_path / "second.db").read_text() == "tables"
    assert len(made) == 2
    (kept,) = (tmp_path / "cache" / "rtl-distill").iterdir()
    assert kept.name == f"prefect-{version('prefect')}.db"


@pytest.mark.slow
def test_it_answers_early_requests_ignores_signals_and_ends_with_the_command_even_by_kill_9(
    tmp_path,
):
    environment = {k: v for k, v in os.environ.items() if k != "PREFECT_API_URL"} | {
        "PREFECT_HOME": str(tmp_path)
    }
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND], env=environment, text=True, **pipes
    ) as command:
        assert command.stdout is not None
        url = command.stdout.readline().strip()
        # A request before it is up is answered once it is.
        assert httpx.get(f"{url}/health", timeout=300).json() is True
        (server,) = psutil.Process(command.pid).children()
        # As from a service manager that stops a control group: the command must still report its end to the server.
        for number in (signal.SIGINT, signal.SIGTERM):
            server.send_signal(number)
        time.sleep(3)  # time enough for a server that reacts to them to end
        assert httpx.get(f"{url}/health", timeout=300).json() is True
        command.send_signal(signal.SIGKILL)
        server.wait(60)


@pytest.mark.slow
def test_concurrent_writes_are_neither_refused_nor_held_up_for_sqlites_lock_timeout_of_a_minute(
    tmp_path,
):
    server, url = start({**server_environment(), "PREFECT_HOME": str(tmp_path)})
    with httpx.Client(base_url=url, timeout=300) as client:

        def post(path, body):
            return client.post(path, json=body).raise_for_status().json()

        flow = post("/flows/", {"name": "f"})["id"]

        def seconds(number):
            started = time.monotonic()
            run = post(
                "/flow_runs/",
                {"flow_id": flow, "name": str(number), "state": {"type": "PENDING"}},
            )["id"]
            post(f"/flow_runs/{run}/set_state", {"state": {"type": "RUNNING"}})
            post("/artifacts/", {"key": f"a-{number}", "data": "x", "flow_run_id": run})
            return time.monotonic() - started

        with ThreadPoolExecutor(6) as threads:
            assert max(threads.map(seconds, range(120))) < 55
        # Prefect emits the event of a paused queue within the transaction that pauses it.
        queue = post("/work_queues/", {"name": "q"})["id"]
        client.patch(
            f"/work_queues/{queue}", json={"is_paused": True}, timeout=50
        ).raise_for_status()
    server.communicate()
