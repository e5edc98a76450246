"""The start and the status of a deployment on this machine."""

import socket
import subprocess

import pytest

from rtl_core.errors import ConfigError
from rtl_distill.operations.local import LocalDeployment, status, up
from tests.places import REPOSITORY
from tests.waiting import wait_for


def test_a_running_deployment_is_found_at_the_port_it_was_started_with(tmp_path):
    started = LocalDeployment(home=tmp_path, folder=tmp_path, port=4777)
    with subprocess.Popen(
        ["sleep", "600"], env={"PATH": "/bin", **started.settings()}
    ) as keeper:
        (tmp_path / "server.pid").write_text(str(keeper.pid))
        try:
            asked = LocalDeployment(home=tmp_path, folder=tmp_path, port=4200)
            running = f"running (kept up by process {keeper.pid})"
            # A new process has no environment for a moment.
            wait_for(lambda: status(asked)["server"] == running, "the server to be found")
            assert asked.settings()["PREFECT_API_URL"] == started.api
        finally:
            keeper.kill()
    assert asked.api == "http://127.0.0.1:4200/api"


def test_a_port_that_another_program_uses_is_named_at_once(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        place = LocalDeployment(home=tmp_path, folder=tmp_path / "deployment", port=port)
        with pytest.raises(
            ConfigError, match=f"port {port} cannot be used: Address already in use"
        ):
            up(place, REPOSITORY / "deployments/prefect.yaml", print)
    assert not (tmp_path / "deployment/server.pid").exists()
