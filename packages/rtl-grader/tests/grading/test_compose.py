"""docker-compose.yml is read as by CVDP's public runner."""

import pytest

from rtl_core.errors import InfrastructureError
from rtl_grader.grading.compose import read_services
from rtl_grader.grading.executors.base import Mount
from rtl_grader.types.answer import Answer
from rtl_grader.types.verdict import Outcome
from tests.nouns import a_problem


def services(compose, **files):
    return read_services({"docker-compose.yml": compose, **files})


@pytest.mark.parametrize("directory", ["/src/rundir/", "/code", "/rundir", "/somewhere/else"])
def test_every_service_runs_in_the_run_directory_of_the_workspace(directory):
    (step,), _ = services(
        f"services:\n  lint:\n    command: pwd\n    working_dir: {directory}\n"
    )
    assert step.cwd == "/code/rundir"


@pytest.mark.parametrize(
    "volume",
    [
        "./rundir:/code/rundir",
        "./harness:/code/harness:ro",
        "/home/me/work:/code",
        "{source: ./x, target: /code/x}",
    ],
)
def test_volumes_in_the_workspace_are_ignored(volume):
    _, mounts = services(
        f"services:\n  t:\n    command: pwd\n    volumes: [{volume}, './src/:/src/:ro']\n"
    )
    assert set(mounts) == {Mount("src", "/src"), Mount("src", "/src", True)}


def test_a_volume_of_this_machine_is_refused():
    with pytest.raises(InfrastructureError, match="not a directory of the workspace"):
        services("services:\n  t:\n    command: pwd\n    volumes: ['/etc:/etc2']\n")


def test_entrypoint_and_command_are_joined_in_either_form():
    text = (
        "services:\n  t:\n    entrypoint: [sh, -c]\n    command: 'pytest \"/src/a b.py\" -v'\n"
    )
    (step,), _ = services(text)
    assert step.argv == ("sh", "-c", "pytest", "/src/a b.py", "-v")


def test_values_of_the_environment_are_texts_as_in_the_file():
    text = "services:\n  t:\n    command: pwd\n    environment: {A: true, B: 3, C: null, D: text, E: 1, F: 0}\n"
    (step,), _ = services(text)
    assert step.env == {"A": "true", "B": "3", "C": "", "D": "text", "E": "1", "F": "0"}


def test_an_env_file_may_have_quotes_and_comments():
    text = "services:\n  t:\n    command: pwd\n    env_file: src/.env\n"
    env = "A = 'top' # the module\nexport B=\"a # b\"\nC=1 # one\n# D=2\nE=''\n"
    (step,), _ = services(text, **{"src/.env": env})
    assert step.env == {"A": "top", "B": "a # b", "C": "1", "E": ""}


@pytest.mark.parametrize("key", ["command: pytest 'a", "{command: pytest, volumes: 3}"])
def test_a_service_that_cannot_be_read_is_named(key):
    with pytest.raises(InfrastructureError, match="service t cannot be read"):
        services(f"services:\n  t:\n    {key}\n")


LINT = """services:
  lint:
    image: __OSS_SIM_IMAGE__
    volumes: ['./src:/src/']
    working_dir: /src/rundir/
    env_file: [src/.env]
    command: pytest /src/lint.py -s -v
"""
LINT_PY = """import os, subprocess
def test_lint():
    assert os.getcwd() == "/code/rundir"
    assert subprocess.run("iverilog -t null -g2012 $VERILOG_SOURCES > lint.log 2>&1", shell=True).returncode == 0
"""


@pytest.mark.parametrize(
    ("body", "outcome"),
    [("assign q = a;", Outcome.PASSED), ("assign q = b;", Outcome.COMPILE_FAILED)],
)
def test_a_lint_service_with_its_own_directory_gives_a_verdict(grader, body, outcome):
    env = "VERILOG_SOURCES = /code/rtl/m.sv\nTOPLEVEL = m\n"
    problem = a_problem(
        harness={"docker-compose.yml": LINT, "src/lint.py": LINT_PY, "src/.env": env}
    )
    verdict = grader.grade(
        problem, Answer(files={"rtl/m.sv": f"module m(input a, output q); {body} endmodule\n"})
    )
    assert verdict.outcome is outcome, verdict.reasons
