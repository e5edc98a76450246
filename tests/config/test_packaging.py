"""Imported packages are declared, locked and installed."""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions

import pytest
from packaging.requirements import Requirement

import rtl_core
from rtl_core.starter import starter_problems
from rtl_core.synthesis.keeping import write
from rtl_core.tinymodels import model_path
from tests.places import REPOSITORY

PROJECTS = {
    "rtl-distill": (".", ("flows", "tasks", "rtl_core", "cli", "operations")),
    "rtl-grader": ("packages/rtl-grader", ("rtl_grader",)),
    "localtinker": ("packages/localtinker", ("localtinker",)),
}
"""Distribution -> its folder, and the folders of its code."""
OWN = {"rtl_core", "rtl_distill", "rtl_grader", "localtinker"}
EXTRAS = {
    "wandb",
    "kaleido",
    "prefect-dask",
    "dask",
    "distributed",
    "tinker-cookbook",
    "psycopg",
    "asyncpg",
    "inspect-ai",
    "verifiers",
    "nemo-gym",
}
"""Optional packages, which a user installs by name."""
BROUGHT_BY = {
    "starlette": "fastapi",
    "markupsafe": "jinja2",
    "httpx": "tinker",
    "find-libpython": "cocotb",
    "choreographer": "kaleido",
    "chz": "tinker-cookbook",
    "aiohttp": "nemo-gym",
}
"""Packages that are part of the interface of another one."""
INSIDE = (
    "packages/rtl-grader/rtl_grader/grading/inside/",
    "packages/rtl-grader/rtl_grader/equivalence/inside/",
    "packages/rtl-grader/rtl_grader/traces/inside/",
    "packages/rtl-grader/rtl_grader/problems/testbench/",
    "packages/rtl-grader/rtl_grader/exports/formats/",
    "rtl_core/starter/bench/",
    "rtl_core/episodes/inside/",
)
"""Code that runs elsewhere, with other packages: in the sandbox, or in the clients of exports."""


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def project(name: str = "rtl-distill") -> dict:
    return tomllib.loads((REPOSITORY / PROJECTS[name][0] / "pyproject.toml").read_text())[
        "project"
    ]


def dependencies() -> list[str]:
    """What the three distributions need, besides each other."""
    lines = [line for name in PROJECTS for line in project(name)["dependencies"]]
    return [line for line in lines if canonical(Requirement(line).name) not in PROJECTS]


def names(requirements: list[str]) -> set[str]:
    return {canonical(re.match(r"[\w.-]+", requirement)[0]) for requirement in requirements}


def imported(name: str) -> Iterator[tuple[str, str]]:
    """Yield (file, top-level module) of every third-party import of a distribution."""
    folder, tops = PROJECTS[name]
    for path in (path for top in tops for path in (REPOSITORY / folder / top).rglob("*.py")):
        file = str(path.relative_to(REPOSITORY))
        if file.startswith(INSIDE):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            modules = []
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                modules = [node.module]
            for top in {module.partition(".")[0] for module in modules}:
                if top not in sys.stdlib_module_names and top not in OWN:
                    yield file, top


@pytest.mark.parametrize("name", PROJECTS)
def test_every_imported_package_is_a_dependency_or_an_extra(name):
    allowed, installed = names(project(name)["dependencies"]), packages_distributions()
    extras = project(name).get("optional-dependencies", {})
    for extra in extras.values() if name != "rtl-distill" else ():
        allowed |= names(extra)
    allowed |= EXTRAS if name == "rtl-distill" else set()
    allowed |= {part for part, bringer in BROUGHT_BY.items() if bringer in allowed}
    missing = {
        (file, top)
        for file, top in imported(name)
        if not {canonical(one) for one in installed.get(top, [top])} & allowed
    }
    assert missing == set()


def test_the_workers_image_has_every_package():
    text = (REPOSITORY / "deployments/worker/Dockerfile").read_text()
    copied = re.findall(r"^COPY (\w+) \1$", text, re.MULTILINE)
    assert {"packages", "rtl_distill", *PROJECTS["rtl-distill"][1]} <= set(copied)


def test_the_versions_agree():
    assert {project(name)["version"] for name in PROJECTS} == {rtl_core.__version__}
    own = {f"{name}=={rtl_core.__version__}" for name in ("rtl-grader", "localtinker")}
    assert own <= set(project()["dependencies"])


def run(folder, *command):
    """Run a command of an environment in a folder, without this environment's variables."""
    environment = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("PYTHON", "VIRTUAL_ENV"))
    }
    words = [*map(str, command)]
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """Mapping of distribution to its wheel."""
    folder = tmp_path_factory.mktemp("wheels")
    places = [REPOSITORY / place for place, _ in PROJECTS.values()]
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir")
    run(folder, *pip, folder, *places)
    return {wheel.name.split("-")[0].replace("_", "-"): wheel for wheel in folder.glob("*.whl")}


def environment(folder, wheels, *installed):
    """Return the Python of a new environment with these wheels and with the dependencies that they name, but nothing else.

    The dependencies are linked from this environment, which is quicker than to install them.
    """
    run(folder, sys.executable, "-m", "venv", "env")
    python = folder / "env" / "bin" / "python"
    own = [wheels[name] for name in installed]
    run(folder, python, "-m", "pip", "install", "--quiet", "--no-deps", *own)
    (site,) = (folder / "env").glob("lib/python*/site-packages")
    for name in needed(*installed):
        for file in distribution(name).files or ():
            top = file.parts[0]
            here = site / top
            if top not in ("..", "__pycache__") and not here.exists():
                here.symlink_to(distribution(name).locate_file(top))
    return python


def needed(*installed: str) -> set[str]:
    """The distributions that these need, and what those need."""
    waiting = [
        Requirement(text) for name in installed for text in project(name)["dependencies"]
    ]
    seen: set[tuple[str, str]] = set()
    while waiting:
        requirement = waiting.pop()
        name = canonical(requirement.name)
        for extra in {"", *requirement.extras}:
            if (name, extra) in seen or name in PROJECTS:
                continue
            try:
                lines = distribution(name).requires or []
            except PackageNotFoundError:  # for another system
                continue
            seen.add((name, extra))
            parts = [Requirement(line) for line in lines]
            waiting += [
                one
                for one in parts
                if one.marker is None or one.marker.evaluate({"extra": extra})
            ]
    return {name for name, _ in seen}


@pytest.mark.slow
def test_the_wheel_trains_from_any_folder_and_installs_no_other_top_level_names(
    tmp_path, wheels
):
    python = environment(tmp_path, wheels, *PROJECTS)
    (site,) = (tmp_path / "env").glob("lib/python*/site-packages")
    for name in PROJECTS["rtl-distill"][1]:
        code = f"import importlib.util as u; print(u.find_spec({name!r}) is not None)"
        assert run(tmp_path, python, "-c", code).strip() == str(name == "rtl_core")
    assert str(site) in run(tmp_path, python, "-c", "import rtl_core; print(rtl_core.__file__)")
    small = (
        "run.epochs=1", "problems.sources.0.train=2", "problems.sources.0.heldout=2", "curriculum.problems_per_step=2",
        "sampling.group_size=2", "evaluation.samples=2", "evaluation.k=[1]",
    )  # fmt: skip
    changes = [word for one in small for word in ("--set", one)]
    told = run(tmp_path, python.with_name("rtl-distill"), "train", "demo", *changes)
    assert "student after" in told
    assert (tmp_path / "runs" / "demo" / "report.html").is_file()


@pytest.mark.slow
def test_the_grader_alone_grades_ten_answers_without_torch_prefect_and_duckdb(tmp_path, wheels):
    python = environment(tmp_path, wheels, "rtl-grader")
    for name in (
        "torch",
        "transformers",
        "tinker",
        "prefect",
        "duckdb",
        "rtl_core",
        "localtinker",
    ):
        code = f"import importlib.util as u; print(u.find_spec({name!r}) is not None)"
        assert run(tmp_path, python, "-c", code).strip() == "False"
    problems = starter_problems("train", 10, 0)
    write(problems, tmp_path / "problems.jsonl")
    answers = [{"id": problem.id, "files": problem.golden} for problem in problems]
    (tmp_path / "answers.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in answers)
    )
    told = run(
        tmp_path, python.with_name("rtl-grader"), "grade", "problems.jsonl",
        "--answers", "answers.jsonl", "--output", "verdicts.jsonl",
    )  # fmt: skip
    assert "10" in told
    verdicts = [
        json.loads(line) for line in (tmp_path / "verdicts.jsonl").read_text().splitlines()
    ]
    assert [verdict["outcome"] for verdict in verdicts] == ["passed"] * 10


@pytest.mark.slow
def test_localtinker_alone_serves_the_sdk_without_prefect_and_simulators(tmp_path, wheels):
    python = environment(tmp_path, wheels, "localtinker")
    for name in ("prefect", "cocotb", "pyslang", "duckdb", "rtl_core", "rtl_grader"):
        code = f"import importlib.util as u; print(u.find_spec({name!r}) is not None)"
        assert run(tmp_path, python, "-c", code).strip() == "False"
    (tmp_path / "example.py").write_text(SERVED.format(model=str(model_path("student"))))
    assert "3 tokens" in run(tmp_path, python, tmp_path / "example.py")


SERVED = """
from pathlib import Path

import tinker
from tinker import types

from localtinker.process import LocalTinker

with LocalTinker({{"student": Path("{model}")}}, Path("state")) as served:
    service = tinker.ServiceClient(base_url=served.base_url, api_key=served.api_key)
    sampler = service.create_sampling_client(base_model="student")
    parameters = types.SamplingParams(max_tokens=3, temperature=1.0)
    prompt = types.ModelInput.from_ints([40, 41, 42])
    answer = sampler.sample(prompt, num_samples=1, sampling_params=parameters).result()
    print(len(answer.sequences[0].tokens), "tokens")
"""


@pytest.mark.parametrize("extra", [None, *project()["optional-dependencies"]])
def test_all_dependencies_are_in_the_lock_file(extra):
    asked = dependencies() if extra is None else project()["optional-dependencies"][extra]
    locked = names(
        [
            line
            for line in (REPOSITORY / "requirements.lock").read_text().splitlines()
            if line[:1].isalnum()
        ]
    )
    assert names(asked) <= locked


def next_series(version: str) -> str:
    """The release after all that a locked version speaks for: 4.0 after 3.8.8, 0.30 after 0.29.1."""
    major, minor = (int(part) for part in version.split(".")[:2])
    return f"{major + 1}.0" if major else f"0.{minor + 1}"


def test_the_wheel_allows_the_locked_versions_and_no_series_beyond_them():
    """A user's pip installs the newest release that the wheel allows."""
    lines = (REPOSITORY / "requirements.lock").read_text().splitlines()
    locked = {
        canonical(line.split("==")[0]): line.split("==")[1].split(";")[0].strip()
        for line in lines
        if "==" in line
    }
    extras = project()["optional-dependencies"]
    asked = [
        *dependencies(),
        *(line for extra, some in extras.items() if extra != "dev" for line in some),
    ]
    for requirement in map(Requirement, asked):
        tested = locked[canonical(requirement.name)]
        assert requirement.specifier.contains(tested), requirement
        assert not requirement.specifier.contains(next_series(tested)), requirement
    (prefect,) = (one for one in map(Requirement, asked) if one.name == "prefect")
    assert not prefect.specifier.contains("3.9.0"), (
        "a minor release migrates its database and changes its server"
    )
