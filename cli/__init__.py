"""The console script `rtl-distill` and its commands, grouped in modules by what a user does.

A command's module is imported when the command is called, and all of them for `--help`. The modules import heavy
packages (torch, Prefect, pyslang) inside their functions, so that `--help` is fast.
"""

from __future__ import annotations

import functools
import importlib
import sys

import typer

from localtinker.errors import LocalTinkerError
from rtl_grader.cli.running import run

# Command name -> module with a function of that name, whose docstring is the help text; those of the two
# packages with a dot.
COMMANDS: dict[str, str] = {
    "make-models": "setup",
    "fetch-model": "setup",
    "grade": "rtl_grader.cli.grade",
    "reproduce": "grade",
    "toolchain": "rtl_grader.cli.toolchain",
    "serve-tinker": "localtinker.cli",
    "serve-grader": "service",
    "check": "training",
    "check-service": "localtinker.cli",
    "train": "training",
    "validate": "problems",
    "problems": "problems",
    "evaluate": "evaluating",
    "episode": "evaluating",
    "config": "training",
    "pause": "training",
    "resume": "training",
    "set-aside": "training",
    "regrade": "grade",
    "audit": "grade",
    "checkpoints": "training",
    "estimate": "estimate",
    "deploy": "setup",
    "report": "results",
    "query": "history",
    "show": "results",
    "debug": "results",
    "compare": "results",
    "watch": "results",
    "view": "results",
    "snapshot": "history",
    "export": "history",
}

app = typer.Typer(
    name="rtl-distill",
    help="Train a language model to write RTL with simulator verdicts and on-policy distillation.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
    pretty_exceptions_enable=False,
    callback=lambda: None,  # with a callback, a single command too is called by its name
)


def register(*names: str) -> None:
    """Import the named commands, or without names all, and add them to `app`."""
    for name in names or COMMANDS:
        _add(name)


@functools.cache
def _add(name: str) -> None:
    """Add a command to `app`, once per process."""
    module = COMMANDS[name]
    path = module if "." in module else f"rtl_distill.cli.{module}"
    command = getattr(importlib.import_module(path), name.replace("-", "_"))
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=name)  # a command with subcommands
    else:
        app.command(name)(command)


def main() -> None:
    """Run the command line. User errors print one message and set the exit code; other errors keep their traceback."""
    register(*(name for name in sys.argv[1:2] if name in COMMANDS))
    run(app, LocalTinkerError)
