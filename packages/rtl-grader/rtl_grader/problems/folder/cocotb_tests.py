"""The harness of a design with cocotb tests: CVDP's form, with a script that builds and runs them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from posixpath import basename
from typing import Any

from rtl_grader.problems.folder.description import FolderError
from rtl_grader.problems.folder.files import UNKNOWN, Folder
from rtl_grader.problems.testbench import COMPOSE, Build
from rtl_grader.types.files import Files
from rtl_grader.verilog_templates import verilog_templates

_TEMPLATES = verilog_templates(Path(__file__).parent)
_SCRIPT = "run_cocotb.py"
_STARTER = "cocotb_test"
"""A library that only starts simulations, which the harness itself does."""
_UNUSED = {f"src/{_STARTER}/__init__.py": "", f"src/{_STARTER}/simulator.py": "run = None\n"}
_PARAMETER = re.compile(r"-(?:P\s*\w+\.|G)(\w+)=(\S+)")
_VARIABLE = "PARAM_"


def cocotb_harness(
    folder: Folder, test: str, build: Build, data: Files, settings: Mapping[str, Any]
) -> dict[str, str]:
    """Return the harness: path -> text.

    Args:
        test: the Python file with the tests. Those beside and below it belong to the harness.
        data: place in the working folder -> text, see `Bench.data`.
        settings: `simulator`, `top`, `designs` (the answer's files), `runs` (a mapping of parameters each), `unit`
            and `precision` of time.
    """
    here = os.path.join(os.path.dirname(test), "")
    files = [path for path in folder.paths if path.endswith(".py") and path.startswith(here)]
    if test not in files:
        raise FolderError("bench", f"there is no Python file {test} with its tests")
    python = {f"src/{path.removeprefix(here)}": folder.text(path) for path in files}
    hidden = {place: f"src/{basename(place)}" for place in data}
    places = {place: f"/code/{path}" for place, path in {**hidden, **build.places}.items()}
    template = _TEMPLATES.get_template(f"{_SCRIPT}.jinja")
    more = (f"MODULE = {basename(test).removesuffix('.py')}", "PYTHONPATH = /src")
    environment = build.environment(
        settings["simulator"], settings["top"], settings["designs"], *more
    )
    return {
        "docker-compose.yml": COMPOSE.replace("run_bench.py", _SCRIPT),
        "src/.env": environment,
        f"src/{_SCRIPT}": template.render(**settings, build=build, data=places),
        **(_UNUSED if any(_STARTER in text for text in python.values()) else {}),
        **python,
        **{path: data[place] for place, path in hidden.items()},
    }


def make_parameters(variables: Mapping[str, str]) -> dict[str, int | str]:
    """The parameters that a Makefile sets, by options and by variables `PARAM_NAME`. Raises FolderError for a
    value that only running it could tell."""
    values = {
        name.removeprefix(_VARIABLE): variables[name]
        for name in variables
        if name.startswith(_VARIABLE)
    }
    values.update(_PARAMETER.findall(variables.get("COMPILE_ARGS", "")))
    for name, value in values.items():
        if UNKNOWN in value:
            raise FolderError("bench.parameters", f"{name} needs a shell: state all parameters")
    return {name: int(value) if value.isdigit() else value for name, value in values.items()}
