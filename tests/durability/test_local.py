"""The status of a running deployment on this machine."""

import subprocess

from rtl_distill.operations.local import LocalDeployment, status
from tests.waiting import wait_for


def test_a_running_deployment_is_found_at_the_port_it_was_started_with(tmp_path):
    started = LocalDeployment(home=tmp_path, folder=tmp_path, port=4777)
    with subprocess.Popen(["sleep", "600"], env={"PATH": "/bin", **started.settings()}) as keeper:
        (tmp_path / "server.pid").write_text(str(keeper.pid))
        try:
            asked = LocalDeployment(home=tmp_path, folder=tmp_path, port=4200)
            running = f"running (process {keeper.pid})"
            # A new process has no environment for a moment.
            wait_for(lambda: status(asked)["server"] == running, "the server to be found")
            assert asked.settings()["PREFECT_API_URL"] == started.api
        finally:
            keeper.kill()
    assert asked.api == "http://127.0.0.1:4200/api"
