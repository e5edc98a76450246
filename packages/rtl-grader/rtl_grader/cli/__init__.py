"""The console script `rtl-grader`.

Command modules import heavy packages (pyslang, docker) inside their functions, so that `--help` is fast.
"""

from __future__ import annotations

import functools
import importlib

import typer

from rtl_grader.cli.running import run

COMMANDS: dict[str, str] = {
    "grade": "grade",
    "reproduce": "grade",
    "validate": "validate",
    "problems": "problems",
    "serve-grader": "serve",
    "toolchain": "toolchain",
}
"""Command name -> module with a function of that name, whose docstring is the help text."""

app = typer.Typer(
    name="rtl-grader",
    help="Grade RTL that a model wrote: sandboxed simulators, verdicts in words, and how far a verdict can be trusted.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
    pretty_exceptions_enable=False,
)


@functools.cache
def register() -> None:
    """Import every command and add it to `app`, once per process."""
    for name, module in COMMANDS.items():
        members = importlib.import_module(f"rtl_grader.cli.{module}")
        command = getattr(members, name.replace("-", "_"))
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)  # a command with subcommands
        else:
            app.command(name)(command)


def main() -> None:
    """Run the command line."""
    register()
    run(app)
