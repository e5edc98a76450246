"""The Docker executor: images derived from a harness' Dockerfile, refused system calls, and agreement with bubblewrap."""

import contextlib
import io
import re
import uuid

import docker
import pytest

from benchmarks.answers import grade_all
from rtl_core.errors import InfrastructureError
from rtl_core.starter import starter_problems
from rtl_grader.grading.executors import make_executor
from rtl_grader.grading.executors.base import Job, Step
from rtl_grader.grading.executors.bubblewrap import BubblewrapExecutor
from rtl_grader.grading.executors.docker import IMAGE, instructions
from rtl_grader.grading.executors.toolchain import Toolchain
from rtl_grader.grading.grader import Grader
from rtl_grader.grading.limits import Limits
from rtl_grader.types.answer import Answer
from rtl_grader.validation.mutants import mutants
from rtl_grader.validation.stubs import stubs


def test_packages_of_the_image_are_recognised():
    image = Toolchain(
        "/opt/sim/bin/python3",
        "/libs",
        "/lib.so",
        {},
        packages={"cocotb": "2.0.1", "cocotb-bus": "0.3.0"},
    )
    there = ["cocotb_bus", "cocotb-bus", "cocotb-bus==0.3.0", "cocotb==1.9.2", "Cocotb>=1.8"]
    missing = ["cocotb-bus==0.2.1", "cocotbext-eth", "numpy"]
    assert [package for package in (*there, *missing) if image.has_package(package)] == there


def test_a_dockerfile_may_have_comments_and_continued_lines():
    text = "FROM __OSS_SIM_IMAGE__\n# words\nRUN pip install \\\n    a b\nWORKDIR /code\nENV X=1\nCMD pytest\n"
    assert instructions(text) == ["RUN pip install      a b", "ENV X=1"]


@pytest.mark.docker
def test_additions_become_a_cached_image():
    mark = uuid.uuid4().hex
    dockerfile = (
        f"FROM __OSS_SIM_IMAGE__\nRUN pip3 install cocotb_bus\nRUN echo {mark} > /opt/added\n"
    )
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
    job = Job(
        {},
        {},
        (Step("direct", ("true",)),),
        dockerfile="FROM x\nRUN pip install --no-index not-a-package\n",
    )
    with (
        make_executor("docker") as executor,
        pytest.raises(InfrastructureError, match="not-a-package"),
    ):
        executor.run(job)


@pytest.mark.docker
def test_packages_that_the_image_has_need_no_derived_image():
    job = Job(
        {}, {}, (Step("direct", ("true",)),), dockerfile="FROM x\nRUN pip install cocotb-bus\n"
    )
    with make_executor("docker") as executor:
        assert executor._images.digest(job.dockerfile) == executor.toolchain.tools["image"]


@pytest.mark.docker
def test_another_image_uses_the_python_on_its_path():
    """Like the public benchmark's image: Python in another directory, no /src and /rundir."""
    lines = [
        f"FROM {IMAGE}",
        "RUN cp -a /opt/sim /venv && rm -rf /opt /src /rundir",
        "ENV PATH=/venv/bin:/usr/bin:/bin",
    ]
    api, tag = docker.APIClient(version="auto"), f"{IMAGE}-other:{uuid.uuid4().hex}"
    try:
        log = list(
            api.build(
                fileobj=io.BytesIO("\n".join(lines).encode()),
                tag=tag,
                rm=True,
                decode=True,
                network_mode="host",
            )
        )
        assert not [line for line in log if "error" in line]
        problem = starter_problems("train", 1, 0)[0]
        with (
            make_executor("docker", tag) as executor,
            contextlib.closing(Grader(executor)) as grader,
        ):
            assert executor.toolchain.python.startswith("/venv/")
            assert grader.grade(problem, Answer(files=problem.golden)).passed
    finally:
        with contextlib.suppress(docker.errors.APIError):
            api.remove_image(tag, force=True)
        api.close()


@pytest.mark.docker
def test_system_calls_that_no_harness_needs_are_refused():
    program = (
        "import ctypes, os, socket\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "for name, number, *words in (('unshare', 272, 0x10000000), ('mount', 165, 0, 0, 0, 0, 0), ('ptrace', 101, 0, 0, 0, 0),\n"
        "    ('process_vm_readv', 310, os.getppid(), 0, 0, 0, 0, 0), ('keyctl', 250, 0, 0, 0), ('bpf', 321, 0, 0, 0),\n"
        "    ('io_uring_setup', 425, 1, 0), ('perf_event_open', 298, 0, 0, -1, -1, 0), ('setns', 308, 0, 0),\n"
        "    ('userfaultfd', 323, 0), ('clone', 56, 0x10000011, 0, 0, 0, 0), ('personality', 135, 0x0040000)):\n"
        "    if libc.syscall(number, *words) != -1 or ctypes.get_errno() != 1: print(name, 'is allowed', ctypes.get_errno())\n"
        "for family in (16, 17, 38, 40):\n"
        "    try: socket.socket(family, socket.SOCK_RAW); print('family', family, 'is allowed')\n"
        "    except PermissionError: pass\n"
        "server = socket.create_server(('127.0.0.1', 0)); socket.create_connection(server.getsockname())\n"
        "print('the end')\n"
    )
    with make_executor("docker") as executor:
        done = executor.run(Job({}, {}, (Step("direct", ("python3", "-c", program)),)))
    assert done.steps[0].output == "the end\n"


def right_and_wrong(problem):
    """Yield (kind, files): the golden answer, a mutant, an extra port, a renamed port, a syntax error, a constant."""
    files = problem.golden or {}
    yield "golden", files
    if problem.interface:
        for mutant in mutants(files, problem.interface.module, 1, 0):
            yield "mutant", mutant.files
    yield (
        "port more",
        {
            p: re.sub(r"\binput\b", "input one_more, input", text, count=1)
            for p, text in files.items()
        },
    )
    if problem.interface:
        port = problem.interface.ports[0].name
        yield (
            "port renamed",
            {
                p: re.sub(rf"\b{re.escape(port)}\b", f"{port}_x", text)
                for p, text in files.items()
            },
        )
    yield "broken", {path: text.replace(";", "", 1) for path, text in files.items()}
    if constant := stubs(problem).files.get("zeros"):
        yield "constant", constant


@pytest.mark.docker
def test_executors_with_the_same_tools_agree_on_right_and_wrong_answers(installed, examples):
    problems = [*starter_problems("heldout", 9, 3), *examples.values()]
    pairs = [
        (problem, kind, files)
        for problem in problems
        for kind, files in right_and_wrong(problem)
    ]
    with BubblewrapExecutor(installed) as one, make_executor("docker") as other:
        tools = [
            {name: version for name, version in e.tools().items() if name != "toolchain"}
            for e in (one, other)
        ]
        assert tools[0] == {
            name: version for name, version in tools[1].items() if name != "image"
        }
        assert one.tools()["toolchain"] == other.tools()["image"]
        found = []
        for executor in (one, other):
            with contextlib.closing(
                Grader(executor, limits=Limits(wall_s=30, cpu_s=10))
            ) as grader:
                verdicts = grade_all(
                    grader, [(problem, Answer(files=files)) for problem, _, files in pairs]
                )
                found.append(
                    [(v.outcome.value, v.tests_passed, v.tests_total) for v in verdicts]
                )
    different = [
        (p.id, kind, *each)
        for (p, kind, _), *each in zip(pairs, *found, strict=True)
        if each[0] != each[1]
    ]
    assert different == []
    outcomes = {outcome for outcome, *_ in found[1]}
    assert {"passed", "tests_failed", "compile_failed", "interface_mismatch"} <= outcomes
    assert "infrastructure_error" not in outcomes
