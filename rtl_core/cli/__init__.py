"""The console script `rtl-distill`: one module per command, listed here.

Command modules import what is heavy (torch, Prefect, pyslang) inside their functions, so that `--help` is quick.
"""

from __future__ import annotations

import importlib
import sys

import typer
from rich.console import Console

from rtl_core.errors import RtlDistillError

# command name -> "module:function"; the function's docstring is its help.
COMMANDS: dict[str, str] = {
    "make-models": "rtl_core.cli.make_models:make_models",
    "grade": "rtl_core.cli.grade:grade",
    "toolchain": "rtl_core.cli.toolchain:toolchain",
    "serve-tinker": "rtl_core.cli.serve_tinker:serve_tinker",
    "train": "rtl_core.cli.train:train",
    "validate": "rtl_core.cli.validate:validate",
    "problems": "rtl_core.cli.synthesize:problems",
    "evaluate": "rtl_core.cli.evaluate:evaluate",
    "config": "rtl_core.cli.config:config",
    "pause": "rtl_core.cli.pause:pause",
    "resume": "rtl_core.cli.pause:resume",
    "regrade": "rtl_core.cli.regrade:regrade",
    "audit": "rtl_core.cli.audit:audit",
    "checkpoints": "rtl_core.cli.checkpoints:checkpoints",
    "estimate": "rtl_core.cli.estimate:estimate",
    "deploy": "rtl_core.cli.deploy:deploy",
    "report": "rtl_core.cli.report:report",
    "query": "rtl_core.cli.query:query",
    "show": "rtl_core.cli.show:show",
    "compare": "rtl_core.cli.compare:compare",
    "watch": "rtl_core.cli.watch:watch",
    "snapshot": "rtl_core.cli.snapshot:snapshot",
    "export": "rtl_core.cli.export:export",
}

app = typer.Typer(
    name="rtl-distill",
    help="Train a language model to write RTL with simulator verdicts and on-policy distillation.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
    pretty_exceptions_enable=False,
)


def register() -> None:
    """Import every command and give it to `app`."""
    for name, target in COMMANDS.items():
        module, function = target.split(":")
        command = getattr(importlib.import_module(module), function)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)  # a command with commands of its own
        else:
            app.command(name)(command)


def main() -> None:
    """Entry point: user errors become one clear message and their exit code, anything else keeps its traceback."""
    register()
    try:
        app()
    except RtlDistillError as error:
        console = Console(stderr=True)
        console.print(f"error: {error.message}", style="bold red", markup=False, highlight=False, soft_wrap=True)
        if error.hint:
            console.print(f"  -> {error.hint}", markup=False, highlight=False, soft_wrap=True)
        sys.exit(error.exit_code)
