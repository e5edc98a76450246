"""Imported packages are declared, locked and installed."""

import ast
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions

import pytest
from packaging.requirements import Requirement

import rtl_core
from tests.conftest import REPOSITORY

ROOMS = ("flows", "tasks", "rtl_core", "cli", "operations")
PACKAGES = {"rtl_core", "rtl_distill"}
DISTRIBUTIONS = {
    "rtl-distill": ".",
    "rtl-grader": "packages/rtl-grader",
    "localtinker": "packages/localtinker",
}
"""Distribution -> its folder. The first one requires the others."""
FOLDERS = {
    "rtl-distill": ROOMS,
    "rtl-grader": ("packages/rtl-grader/rtl_grader",),
    "localtinker": ("packages/localtinker/localtinker",),
}
"""Distribution -> folders of its code."""
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
    "packages/rtl-grader/rtl_grader/problems/testbench/",
    "rtl_core/starter/bench/",
)
"""Code that runs in the sandbox, with the sandbox's packages."""


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def project(distribution: str = "rtl-distill") -> dict:
    path = REPOSITORY / DISTRIBUTIONS[distribution] / "pyproject.toml"
    return tomllib.loads(path.read_text())["project"]


def names(requirements: list[str]) -> set[str]:
    return {canonical(re.match(r"[\w.-]+", requirement)[0]) for requirement in requirements}


def imported(distribution: str) -> Iterator[tuple[str, str]]:
    """Yield (file, top-level module) of every third-party import of a distribution."""
    own = PACKAGES if distribution == "rtl-distill" else {canonical(distribution).replace("-", "_")}
    for room in FOLDERS[distribution]:
        for path in (REPOSITORY / room).rglob("*.py"):
            file = str(path.relative_to(REPOSITORY))
            if file.startswith(INSIDE):
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                modules = (
                    [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                )
                modules += (
                    [node.module]
                    if isinstance(node, ast.ImportFrom) and node.module and not node.level
                    else []
                )
                for top in {module.partition(".")[0] for module in modules}:
                    if top not in sys.stdlib_module_names and top not in own:
                        yield file, top


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_every_imported_package_is_a_dependency_or_an_extra(distribution):
    installed = packages_distributions()
    allowed = names(project(distribution)["dependencies"])
    if distribution == "rtl-distill":
        allowed |= EXTRAS
        for required in ("rtl-grader", "localtinker"):
            allowed |= names(project(required)["dependencies"])
    allowed |= {name for name, bringer in BROUGHT_BY.items() if bringer in allowed}
    missing = {
        (file, top)
        for file, top in imported(distribution)
        if not {canonical(name) for name in installed.get(top, [top])} & allowed
    }
    assert missing == set()


def test_the_workers_image_has_every_package():
    wheel = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["hatch"]["build"][
        "targets"
    ]["wheel"]
    copied = re.findall(
        r"^COPY (\w+) \1$", (REPOSITORY / "deployments/worker/Dockerfile").read_text(), re.MULTILINE
    )
    assert set(wheel["packages"]) == PACKAGES
    assert PACKAGES | set(ROOMS) <= set(copied)


def test_the_versions_agree():
    for distribution in DISTRIBUTIONS:
        assert project(distribution)["version"] == rtl_core.__version__


@pytest.mark.slow
def test_the_wheel_trains_from_any_folder_and_installs_no_other_top_level_names(tmp_path):
    def run(*command):
        environment = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("PYTHON", "VIRTUAL_ENV"))
        }
        done = subprocess.run(
            [*map(str, command)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        tmp_path,
        REPOSITORY,
    )
    (wheel,) = tmp_path.glob("*.whl")
    run(sys.executable, "-m", "venv", "env")
    python = tmp_path / "env" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", wheel)
    # Dependencies are already installed here and checked above. An editable installation is not visible this way.
    (site,) = (tmp_path / "env").glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    for name in ROOMS:
        found = run(
            python, "-c", f"import importlib.util as u; print(u.find_spec({name!r}) is not None)"
        )
        assert found.strip() == str(name == "rtl_core")
    assert str(site) in run(python, "-c", "import rtl_core; print(rtl_core.__file__)")
    small = (
        "run.epochs=1", "problems.sources.0.train=2", "problems.sources.0.heldout=2", "curriculum.problems_per_step=2",
        "sampling.group_size=2", "evaluation.samples=2", "evaluation.k=[1]",
    )  # fmt: skip
    told = run(
        python.with_name("rtl-distill"),
        "train",
        "demo",
        *(word for one in small for word in ("--set", one)),
    )
    assert "student after" in told
    assert (tmp_path / "runs" / "demo" / "report.html").is_file()


def required() -> list[str]:
    """Requirements of all distributions except on each other, without extras."""
    lines = [line for name in DISTRIBUTIONS for line in project(name)["dependencies"]]
    return [line for line in lines if not names([line]) <= set(DISTRIBUTIONS)]


@pytest.mark.parametrize("extra", [None, *project()["optional-dependencies"]])
def test_all_dependencies_are_in_the_lock_file(extra):
    lines = required() if extra is None else project()["optional-dependencies"][extra]
    locked = names(
        [
            line
            for line in (REPOSITORY / "requirements.lock").read_text().splitlines()
            if line[:1].isalnum()
        ]
    )
    assert names(lines) <= locked


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
    requirements = [
        *required(),
        *(line for extra, some in extras.items() if extra != "dev" for line in some),
    ]
    for requirement in map(Requirement, requirements):
        tested = locked[canonical(requirement.name)]
        assert requirement.specifier.contains(tested), requirement
        assert not requirement.specifier.contains(next_series(tested)), requirement
    (prefect,) = (one for one in map(Requirement, requirements) if one.name == "prefect")
    assert not prefect.specifier.contains("3.9.0"), (
        "a minor release migrates its database and changes its server"
    )
