"""Fixtures: the simulation image's tools, an executor that records jobs, shell commands in a sandbox, and killing sandboxes."""

import contextlib
import shutil
from pathlib import Path

import docker
import pytest

from rtl_grader.grading.executors.base import Job, Step
from rtl_grader.grading.executors.install import install
from rtl_grader.grading.executors.toolchain import Toolchain

ARBITER = "cvdp_agentic_fixed_arbiter_0001"
LFSR = "cvdp_copilot_lfsr_0001"


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """The toolchain installed from the simulation image; reuses an equal one in RTL_DISTILL_TOOLS."""
    from rtl_grader.grading.executors.docker import IMAGE

    image = docker.APIClient(version="auto").inspect_image(IMAGE)["Id"]
    found = Toolchain.installed()
    if found is not None and found.tools["toolchain"] == image:
        yield found
        return
    home = tmp_path_factory.mktemp("tools")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RTL_DISTILL_TOOLS", str(home))
        yield install("docker")
    shutil.rmtree(home)  # a gigabyte


class Counting:
    """An executor that records the results of its jobs."""

    def __init__(self, executor):
        self.executor, self.jobs = executor, []

    def __getattr__(self, name):
        return getattr(self.executor, name)

    def run(self, job):
        result = self.executor.run(job)
        self.jobs.append(result)
        return result


@pytest.fixture
def counting(executor):
    return Counting(executor)


@pytest.fixture
def shell(executor):
    """Runs one shell command in a sandbox and returns its StepResult."""

    def run(command, *, files=None, harness=None, env=None, cwd="/code/rundir", **job):
        step = Step("direct", ("sh", "-c", command), env or {}, cwd)
        return executor.run(Job(files or {}, harness or {}, (step,), **job)).steps[0]

    return run


def below(pid):
    """Ids of a process and its descendants on this machine."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(found for child in children for found in below(int(child)))]


def kill_sandboxes(executor, chosen=lambda: True):
    """Kill busy sandboxes of an executor, as an operator or the kernel might; `chosen()` decides for each."""
    if executor.name == "docker":
        for entry in executor._api.containers(
            filters={"label": f"rtl-distill.owner={executor._owner}"}
        ):
            if chosen():
                with contextlib.suppress(Exception):
                    executor._api.kill(entry["Id"])
    else:
        for cell in list(executor._busy):
            if chosen():
                cell.kill()
