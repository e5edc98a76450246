"""The harness of a design with cocotb tests: CVDP's form, with a script that builds and runs them."""

from __future__ import annotations

import ast
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from posixpath import basename
from typing import Any

from rtl_grader.problems.executed import parse_python
from rtl_grader.problems.folder.description import FolderError
from rtl_grader.problems.folder.files import Folder
from rtl_grader.problems.testbench import COMPOSE, Build
from rtl_grader.types.files import Files
from rtl_grader.verilog_templates import verilog_templates

SCRIPT = "src/run_cocotb.py"
_TEMPLATES = verilog_templates(Path(__file__).parent)
_UNUSED = {
    "cocotb_test/__init__.py": "",
    "cocotb_test/simulator.py": '"""Not called: the harness itself builds and runs."""\n\nrun = None\n',
}
"""In place of a library that only starts simulations."""


def cocotb_harness(
    build: Build,
    *,
    simulator: str,
    top: str,
    designs: Sequence[str],
    module: str,
    python: Files,
    data: Mapping[str, str],
    settings: Mapping[str, Any],
) -> dict[str, str]:
    """Return the harness: path -> text.

    Args:
        designs: the answer's files.
        module: the Python module with the tests.
        python: its file and those that it imports: path below `src` -> text.
        data: place in the working folder -> text, see `Bench.data`.
        settings: `runs` (a mapping of parameters each) and `timescale` of the script.
    """
    hidden = {place: f"src/{basename(place)}" for place in data}
    places = {place: f"/code/{path}" for place, path in {**hidden, **build.places}.items()}
    script = _TEMPLATES.get_template("run_cocotb.py.jinja").render(
        **settings,
        includes=[f"/code/{folder}" for folder in build.include],
        define=dict(build.define),
        plusargs=list(build.plusargs),
        data=places,
    )
    more = (f"MODULE = {module}", "PYTHONPATH = /src")
    return {
        "docker-compose.yml": COMPOSE.replace("/src/run_bench.py", f"/{SCRIPT}"),
        "src/.env": build.environment(simulator, top, designs, *more),
        SCRIPT: script,
        **{f"src/{path}": text for path, text in python.items()},
        **{path: data[place] for place, path in hidden.items()},
    }


def python_files(folder: Folder, test: str) -> dict[str, str]:
    """The file with the tests and what it imports from the folder: path below the harness' `src` -> text.

    A module is looked for beside the tests and in each folder above them. Raises FolderError for a syntax error.
    """
    here = os.path.dirname(test)
    above = [here]
    while above[-1]:
        above.append(os.path.dirname(above[-1]))
    files: dict[str, str] = {}
    waiting = [(basename(test), test)]
    while waiting:
        name, path = waiting.pop()
        if name in files:
            continue
        files[name] = folder.text(path)
        tree = parse_python(files[name])
        if tree is None:
            raise FolderError(path, "is no valid Python")
        modules = _imported(tree)
        if "cocotb_test" in modules:
            files |= _UNUSED
        for module in modules:
            waiting += next(filter(None, (_module(folder, base, module) for base in above)), [])
    return files


def _imported(tree: ast.Module) -> set[str]:
    """First parts of the names of the modules that a file imports."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            aliases = [alias.name for alias in node.names]
            names |= {node.module.split(".")[0]} if node.module else set(aliases)
    return names


def _module(folder: Folder, base: str, name: str) -> list[tuple[str, str]]:
    """(path below `src`, path) of a module's file, or of all Python files of a package."""
    file = os.path.join(base, f"{name}.py")
    if file in folder.paths:
        return [(f"{name}.py", file)]
    package = os.path.join(base, name) + "/"
    if f"{package}__init__.py" not in folder.paths:
        return []
    start = len(os.path.join(base, ""))
    files = (path for path in folder.paths if path.startswith(package) and path.endswith(".py"))
    return [(path[start:], path) for path in files]
