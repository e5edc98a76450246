"""What the code imports is what `make setup` installs."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions

import pytest

from tests.conftest import REPOSITORY

ROOMS = ("flows", "tasks", "rtl_core", "cli", "operations")
EXTRAS = {"wandb", "kaleido", "prefect-dask", "dask", "distributed", "tinker-cookbook", "psycopg", "asyncpg"}
"""Packages that a user asks for by name."""
BROUGHT_BY = {
    "starlette": "fastapi",
    "markupsafe": "jinja2",
    "httpx": "tinker",
    "find-libpython": "cocotb",
    "choreographer": "kaleido",
    "chz": "tinker-cookbook",
}
"""Packages that are part of another one's interface."""
INSIDE = ("rtl_core/grading/inside/", "rtl_core/problems/testbench/", "rtl_core/problems/starter/bench/")
"""Code that runs in the sandbox, with the sandbox's packages."""


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def project() -> dict:
    return tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]


def names(requirements: list[str]) -> set[str]:
    return {canonical(re.match(r"[\w.-]+", requirement)[0]) for requirement in requirements}


def imported() -> Iterator[tuple[str, str]]:
    """(file, top-level module) of every import of something that is neither ours nor Python's."""
    for room in ROOMS:
        for path in (REPOSITORY / room).rglob("*.py"):
            file = str(path.relative_to(REPOSITORY))
            if file.startswith(INSIDE):
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                modules += [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []
                for top in {module.partition(".")[0] for module in modules}:
                    if top not in sys.stdlib_module_names and top not in ROOMS:
                        yield file, top


def test_every_package_that_is_imported_is_a_dependency_or_an_extra_that_the_user_asks_for() -> None:
    allowed, installed = names(project()["dependencies"]) | EXTRAS, packages_distributions()
    allowed |= {name for name, bringer in BROUGHT_BY.items() if bringer in allowed}
    missing = {
        (file, top) for file, top in imported() if not {canonical(name) for name in installed.get(top, [top])} & allowed
    }
    assert missing == set()


def test_the_workers_image_has_every_package() -> None:
    wheel = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    copied = re.findall(r"^COPY (\w+) \1$", (REPOSITORY / "deployments/worker/Dockerfile").read_text(), re.MULTILINE)
    assert set(wheel["packages"]) <= set(copied)
    assert set(wheel["packages"]) == set(ROOMS)


def test_the_docker_executor_needs_no_extra() -> None:
    assert "docker" in names(project()["dependencies"])
    assert names(project()["optional-dependencies"]["docker"]) == {"prefect-docker"}


@pytest.mark.parametrize("extra", [None, *project()["optional-dependencies"]])
def test_what_is_asked_for_is_in_the_lock_that_setup_installs(extra: str | None) -> None:
    asked = project()["dependencies"] if extra is None else project()["optional-dependencies"][extra]
    locked = names([line for line in (REPOSITORY / "requirements.lock").read_text().splitlines() if line[:1].isalnum()])
    assert names(asked) <= locked
