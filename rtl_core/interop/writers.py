"""From a folder with tasks to one in a client's format: one function a format. The files that are the same for every export lie in `formats/`."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from rtl_core.interop.exported import TASKS

FORMATS = Path(__file__).parent / "formats"


def inspect_ai(folder: Path) -> str:
    """An Inspect task beside `tasks.jsonl`, and the agent's container."""
    shutil.copytree(FORMATS / "inspect_ai", folder, dirs_exist_ok=True)
    return f"inspect eval {folder}/rtl.py --model MODEL"


def verifiers(folder: Path) -> str:
    """A package with one v1 taskset; the tasks move into it, so that they are installed with it."""
    shutil.copytree(FORMATS / "verifiers", folder, dirs_exist_ok=True)
    for part in (folder / TASKS, folder / "licences"):
        if part.exists():
            part.rename(folder / "rtl_tasks" / part.name)
    return f"pip install {folder} && vf-validate rtl-tasks --runtime.type subprocess"


Writer = Callable[[Path], str]
WRITERS: dict[str, Writer] = {"inspect": inspect_ai, "verifiers": verifiers}
"""Name of a format -> what writes it into the folder of the tasks and returns the client's command."""
