"""A harness' own Dockerfile becomes a derived image when it adds something, and is told of when that cannot be had."""

import contextlib
import io
import uuid

import docker
import pytest

from rtl_core.errors import InfrastructureError
from rtl_core.grading.executors import make_executor
from rtl_core.grading.executors.base import Job, Step
from rtl_core.grading.executors.docker_images import IMAGE, instructions
from rtl_core.grading.executors.toolchain import Toolchain
from rtl_core.grading.grader import Grader
from rtl_core.problems.starter import starter_problems
from rtl_core.types.answer import Answer

INSIDE = Toolchain(
    "/opt/sim/bin/python3",
    "/libs",
    "/lib.so",
    {},
    modules=frozenset({"cocotb", "cocotb_bus"}),
    packages={"cocotb": "2.0.1", "cocotb-bus": "0.3.0"},
)


def test_packages_of_the_image_are_not_installed_again():
    there = ("cocotb_bus", "cocotb-bus", "cocotb-bus==0.3.0", "cocotb==1.9.2", "Cocotb>=1.8")
    assert [one for one in (*there, "cocotb-bus==0.2.1", "cocotbext-eth", "numpy") if INSIDE.has_package(one)] == [
        *there
    ]


def test_a_dockerfile_is_read_with_comments_and_continued_lines():
    text = "FROM __OSS_SIM_IMAGE__\n# words\nRUN pip install \\\n    a b\nWORKDIR /code\nENV X=1\nCMD pytest\n"
    assert instructions(text) == ["RUN pip install      a b", "ENV X=1"]


@pytest.mark.docker
def test_additions_become_a_cached_image():
    mark = uuid.uuid4().hex
    dockerfile = f"FROM __OSS_SIM_IMAGE__\nRUN pip3 install cocotb_bus\nRUN echo {mark} > /opt/added\n"
    job = Job({}, {}, (Step("direct", ("cat", "/opt/added")),), dockerfile=dockerfile)
    api = docker.APIClient(version="auto")
    before = {image["Id"] for image in api.images(f"{IMAGE}-derived")}
    try:
        with make_executor("docker") as executor:
            assert executor.run(job).steps[0].output == mark + "\n"
            derived = {image["Id"] for image in api.images(f"{IMAGE}-derived")} - before
            assert len(derived) == 1
        with make_executor("docker") as executor:
            assert executor.run(job).steps[0].output == mark + "\n"
            assert {image["Id"] for image in api.images(f"{IMAGE}-derived")} - before == derived
    finally:
        for image in {image["Id"] for image in api.images(f"{IMAGE}-derived")} - before:
            with contextlib.suppress(docker.errors.APIError):
                api.remove_image(image, force=True)


@pytest.mark.docker
def test_additions_that_cannot_be_installed_are_an_infrastructure_error_that_names_them():
    job = Job({}, {}, (Step("direct", ("true",)),), dockerfile="FROM x\nRUN pip install --no-index not-a-package\n")
    with make_executor("docker") as executor, pytest.raises(InfrastructureError, match="not-a-package"):
        executor.run(job)


@pytest.mark.docker
def test_what_an_image_has_needs_no_other():
    job = Job({}, {}, (Step("direct", ("true",)),), dockerfile="FROM x\nRUN pip install cocotb-bus\n")
    with make_executor("docker") as executor:
        assert executor._images.digest(job.dockerfile) == executor.toolchain.tools["image"]


@pytest.mark.docker
def test_an_image_that_is_not_ours_grades_with_the_python_on_its_path():
    """As the public benchmark's own: another place of Python, no /src and /rundir."""
    lines = [
        f"FROM {IMAGE}",
        "RUN cp -a /opt/sim /venv && rm -rf /opt /src /rundir",
        "ENV PATH=/venv/bin:/usr/bin:/bin",
    ]
    api, tag = docker.APIClient(version="auto"), f"{IMAGE}-other:{uuid.uuid4().hex}"
    try:
        log = list(
            api.build(fileobj=io.BytesIO("\n".join(lines).encode()), tag=tag, rm=True, decode=True, network_mode="host")
        )
        assert not [line for line in log if "error" in line]
        problem = starter_problems("train", 1, 0)[0]
        with make_executor("docker", tag) as executor:
            assert executor.toolchain.python.startswith("/venv/")
            grader = Grader(executor)
            assert grader.grade(problem, Answer(files=problem.golden)).passed
            grader.close()
    finally:
        with contextlib.suppress(docker.errors.APIError):
            api.remove_image(tag, force=True)
        api.close()
