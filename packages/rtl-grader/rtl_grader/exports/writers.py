"""Convert a folder of tasks to a client's format, with one function per format. Files common to all exports
are in `formats/`."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from jinja2 import Environment, FileSystemLoader

from rtl_grader.errors import ProblemError
from rtl_grader.exports.exported import TASKS, instruction, messages, read_tasks
from rtl_grader.types.files import Files
from rtl_grader.types.problem import Problem
from rtl_grader.words import command

FORMATS = Path(__file__).parent / "formats"


def inspect_ai(folder: Path) -> str:
    """Add an Inspect task beside `tasks.jsonl`, and the agent's container."""
    shutil.copytree(FORMATS / "inspect_ai", folder, dirs_exist_ok=True)
    return f"inspect eval {folder}/rtl.py --model MODEL"


def verifiers(folder: Path) -> str:
    """Make a package with one v1 taskset. The tasks move into it, so that they are installed with it."""
    shutil.copytree(FORMATS / "verifiers", folder, dirs_exist_ok=True)
    for part in (folder / TASKS, folder / "licences"):
        if part.exists():
            part.rename(folder / "rtl_tasks" / part.name)
    return f"pip install {folder} && vf-validate rtl-tasks --runtime.type subprocess"


def harbor(folder: Path) -> str:
    """Add a task folder of schema 1.4 for each problem. Its verifier runs in a separate container and calls
    the grading service.

    Raises ProblemError for an id that is not a valid folder name.
    """
    for problem in read_tasks(folder).values():
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", problem.id):
            raise ProblemError(
                f"{problem.id!a} cannot name a Harbor task",
                "rename it with letters, digits, `.`, `_` and `-`",
            )
        _harbor_task(problem, folder / problem.id)
    return f"a `{command('serve-grader')}` with the same problems, then harbor run -p {folder} -a AGENT -m MODEL"


def _harbor_task(problem: Problem, folder: Path) -> None:
    shutil.copytree(FORMATS / "harbor", folder)
    task = {
        "id": problem.id,
        "fingerprint": problem.fingerprint,
        "targets": list(problem.targets),
    }
    (folder / "tests/task.json").write_text(json.dumps(task), encoding="utf-8")
    (folder / "instruction.md").write_text(instruction(problem), encoding="utf-8")
    # The folders of targets exist from the start, with the context files in them.
    folders = {f"{Path(path).parent}/.keep": "" for path in problem.targets}
    _write(folder / "environment/workspace", {**folders, **problem.context})
    if problem.golden is None:
        shutil.rmtree(folder / "solution")
    else:
        _write(folder / "solution/files", problem.golden)
    # A basic string of TOML is written as in JSON.
    templates = Environment(loader=FileSystemLoader(FORMATS), keep_trailing_newline=True)
    templates.filters.update(json=json.dumps)
    settings = templates.get_template("harbor_task.toml.jinja").render(problem=problem)
    (folder / "task.toml").write_text(settings, encoding="utf-8")


def _write(root: Path, files: Files) -> None:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")


def nemo_gym(folder: Path) -> str:
    """Add a resources server that calls the grading service, an agent that responds once, and the dataset."""
    shutil.copytree(FORMATS / "nemo_gym", folder, dirs_exist_ok=True)
    lines = [
        {
            "responses_create_params": {"input": messages(problem)},
            "id": problem.id,
            "fingerprint": problem.fingerprint,
            "agent_ref": {"type": "responses_api_agents", "name": "rtl_simple_agent"},
        }
        for problem in read_tasks(folder).values()
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    _write(folder / "resources_servers/rtl/data", {"rtl.jsonl": text})
    server = command("serve-grader")
    return f"a `{server}` with the same problems, then in {folder}: gym eval run --resources-server rtl ..."


WRITERS: dict[str, Callable[[Path], str]] = {
    "inspect": inspect_ai,
    "verifiers": verifiers,
    "harbor": harbor,
    "nemo-gym": nemo_gym,
}
"""Mapping of format to a function that writes it to the folder of tasks and returns the client's command."""
