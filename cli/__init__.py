"""The console script `rtl-distill` and its commands, grouped in modules by what a user does.

Command modules import heavy packages (torch, Prefect, pyslang) inside their functions, so that `--help` is fast.
"""

from __future__ import annotations

import errno
import functools
import importlib
import io
import sys
import traceback

import typer
from rich.console import Console

from rtl_core.errors import RtlDistillError

# Command name -> module with a function of that name, whose docstring is the help text.
COMMANDS: dict[str, str] = {
    "make-models": "setup",
    "fetch-model": "setup",
    "grade": "grade",
    "reproduce": "grade",
    "toolchain": "setup",
    "serve-tinker": "service",
    "serve-grader": "service",
    "check": "training",
    "check-service": "service",
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
)


@functools.cache
def register() -> None:
    """Import every command and add it to `app`, once per process."""
    for name, module in COMMANDS.items():
        command = getattr(importlib.import_module(f"rtl_distill.cli.{module}"), name.replace("-", "_"))
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)  # a command with subcommands
        else:
            app.command(name)(command)


def main() -> None:
    """Run the command line. User errors print one message and set the exit code; other errors keep their traceback."""
    register()
    # Like stderr: a character that the terminal cannot encode must not end a run.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app()
    except (RtlDistillError, OSError) as error:
        # Prefect's states keep the error alive. Its frames would keep a connection open, which causes a warning at exit.
        traceback.clear_frames(error.__traceback__)
        if isinstance(error, OSError):
            if error.filename is None and error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            # The error of a write to an open file has no file name.
            message = f"{error.filename2 or error.filename or 'the output'}: {error.strerror}"
            error = RtlDistillError(message, "check the path, its permissions and the free space on its disk")
        console = Console(stderr=True)
        console.print(
            f"error: {error.message}", style="bold red", markup=False, emoji=False, highlight=False, soft_wrap=True
        )
        if error.hint:
            console.print(f"  -> {error.hint}", markup=False, emoji=False, highlight=False, soft_wrap=True)
        sys.exit(error.exit_code)
