"""What the commands around a deployment on this machine say of one that runs."""

import subprocess

from rtl_distill.operations.local import LocalDeployment, status
from tests.waiting import wait_for


def test_a_deployment_that_runs_is_asked_at_the_port_that_it_was_started_with(tmp_path):
    started = LocalDeployment(home=tmp_path, folder=tmp_path, port=4777)
    with subprocess.Popen(["sleep", "600"], env={"PATH": "/bin", **started.settings()}) as keeper:
        (tmp_path / "server.pid").write_text(str(keeper.pid))
        try:
            asked = LocalDeployment(home=tmp_path, folder=tmp_path, port=4200)
            running = f"running (process {keeper.pid})"
            # A program that was just started has no environment for a moment.
            wait_for(lambda: status(asked)["server"] == running, "the server's part to be found")
            assert asked.settings()["PREFECT_API_URL"] == started.api
        finally:
            keeper.kill()
    assert asked.api == "http://127.0.0.1:4200/api"
