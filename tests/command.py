"""`rtl-distill` as a user types it: in a process of its own, or in this one where nothing depends on that."""

import os
import subprocess
from collections.abc import Iterable
from typing import Any

from typer.testing import CliRunner, Result

from benchmarks.common import command
from rtl_distill import cli


def run(
    *words: object, sets: Iterable[str] = (), env: dict[str, str] | None = None, **how: Any
) -> subprocess.CompletedProcess[str]:
    """What a process said, whatever its exit code, on a terminal of 200 columns; settings of the hub and of runs in the environment are none of its."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "RTL_DISTILL__"))}
    environment = {**plain, "COLUMNS": "200", **(env or {})}
    return subprocess.run(
        command(*words, sets=sets), env=environment, capture_output=True, text=True, check=False, **how
    )


def invoke(*words: object, sets: Iterable[str] = (), **env: str) -> Result:
    """The same within this process."""
    cli.register()
    return CliRunner(env=env).invoke(cli.app, [*map(str, words), *(f"--set={one}" for one in sets)])
