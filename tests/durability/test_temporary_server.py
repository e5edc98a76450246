"""The temporary Prefect server of a command: started only if no other is configured, and ended with the command."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import psutil
import pytest

from rtl_distill.operations.temporary_server import names_server, server_environment, start

COMMAND = """\
import os, sys
from rtl_distill.operations.temporary_server import start_temporary_server
start_temporary_server()
print(os.environ["PREFECT_API_URL"], flush=True)
sys.stdin.read()
"""


EPHEMERAL = 'active = "ephemeral"\n[profiles.ephemeral]\nPREFECT_SERVER_ALLOW_EPHEMERAL_MODE = "true"\n'


@pytest.mark.parametrize(
    ("file", "text", "named"),
    [
        ("profiles.toml", EPHEMERAL, False),
        ("profiles.toml", '[profiles.local]\nPREFECT_API_URL = "http://127.0.0.1:4200/api"\n', True),
        ("prefect.toml", '[api]\nurl = "http://127.0.0.1:4200/api"\n', True),
        ("pyproject.toml", '[tool.prefect.api]\nurl="http://127.0.0.1:4200/api"\n', True),
        ("pyproject.toml", '[project]\nname = "x"\n[project.urls]\nurl = "https://x"\n', False),
        (".env", "PREFECT_API_URL=http://127.0.0.1:4200/api\n", True),
    ],
)
def test_a_server_configured_anywhere_is_left_to_prefect(tmp_path, file, text, named):
    (tmp_path / file).write_text(text)
    assert names_server({"PREFECT_HOME": str(tmp_path)}, tmp_path) is named
    assert names_server({"PREFECT_HOME": str(tmp_path / "none"), "PREFECT_API_URL": "http://x/api"}, tmp_path)


def test_if_prefects_folder_is_not_writable_it_gets_one_that_is_deleted_with_the_command():
    command = "import os; from rtl_distill.operations.temporary_server import _ensure_home; _ensure_home(); print(os.environ['PREFECT_HOME'])"
    command += "; open(os.environ['PREFECT_HOME'] + '/prefect.db', 'w')"
    environment = {**os.environ, "PREFECT_HOME": "/proc/none/.prefect"}
    done = subprocess.run([sys.executable, "-c", command], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() != "/proc/none/.prefect"
    assert not os.path.exists(done.stdout.strip())


@pytest.mark.slow
def test_it_answers_early_requests_ignores_signals_and_ends_with_the_command_even_by_kill_9(tmp_path):
    environment = {k: v for k, v in os.environ.items() if k != "PREFECT_API_URL"} | {"PREFECT_HOME": str(tmp_path)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", COMMAND], env=environment, text=True, **pipes) as command:
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
def test_concurrent_writes_are_neither_refused_nor_held_up_for_sqlites_lock_timeout_of_a_minute(tmp_path):
    server, url = start({**server_environment(), "PREFECT_HOME": str(tmp_path)})
    with httpx.Client(base_url=url, timeout=300) as client:

        def post(path, body):
            return client.post(path, json=body).raise_for_status().json()

        flow = post("/flows/", {"name": "f"})["id"]

        def seconds(number):
            started = time.monotonic()
            run = post("/flow_runs/", {"flow_id": flow, "name": str(number), "state": {"type": "PENDING"}})["id"]
            post(f"/flow_runs/{run}/set_state", {"state": {"type": "RUNNING"}})
            post("/artifacts/", {"key": f"a-{number}", "data": "x", "flow_run_id": run})
            return time.monotonic() - started

        with ThreadPoolExecutor(6) as threads:
            assert max(threads.map(seconds, range(120))) < 55
        # Prefect emits the event of a paused queue within the transaction that pauses it.
        queue = post("/work_queues/", {"name": "q"})["id"]
        client.patch(f"/work_queues/{queue}", json={"is_paused": True}, timeout=50).raise_for_status()
    server.communicate()
