"""Which runs the flow `resume` starts again: what the history's columns say decides, not the message for people."""

import socket

import pytest
import yaml

from rtl_core.config import load_config
from rtl_core.history.records import RunRecord
from rtl_distill.flows.resume import wants_to_run
from tests.conftest import REPOSITORY


@pytest.mark.parametrize(
    ("status", "ended_by", "starts"),
    [
        ("running", None, True),
        ("cancelled", "signal", True),
        ("cancelled", "request", False),
        ("paused", None, False),
        ("failed", None, False),
        ("finished", None, False),
    ],
)
@pytest.mark.parametrize("message", [None, "stopped by a signal", "cancelled in Prefect"])
def test_a_killed_run_and_one_that_a_signal_ended_are_started_again(tmp_path, status, ended_by, starts, message):
    config = load_config("demo", [f"run.directory={tmp_path}", "run.name=r"], environment={})
    record = RunRecord(name="r", status=status, ended_by=ended_by, message=message)
    here = {"deployment": "train/nightly", "host": socket.gethostname()}
    assert wants_to_run(record, config, here) is starts
    assert not wants_to_run(record, config, {**here, "host": "elsewhere"})
    assert not wants_to_run(record, config, {**here, "deployment": ""})


def test_a_worker_of_compose_keeps_its_host_name_when_its_container_is_made_anew():
    services = yaml.safe_load((REPOSITORY / "deployments" / "compose.yaml").read_text())["services"]
    assert services["worker"]["hostname"], "wants_to_run compares host names, and a new container has a new one"
