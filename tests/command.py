"""Run `rtl-distill` as a user does: in a subprocess, or in this process where that makes no difference."""

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
    """Run a command in a subprocess, 200 columns wide, without the environment's settings of the hub and of runs. Any exit code is allowed."""
    plain = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HF_", "RTL_DISTILL__"))
    }
    environment = {**plain, "COLUMNS": "200", **(env or {})}
    done = subprocess.run(
        command(*words, sets=sets),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        **how,
    )
    assert "nanobind" not in done.stderr, "a library's class is held at module level"
    return done


def invoke(*words: object, sets: Iterable[str] = (), **env: str) -> Result:
    """Run a command in this process."""
    cli.register()
    return CliRunner(env=env).invoke(
        cli.app, [*map(str, words), *(f"--set={one}" for one in sets)]
    )
