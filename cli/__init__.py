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
    "make-models": "cli.make_models:make_models",
    "fetch-model": "cli.fetch_model:fetch_model",
    "grade": "cli.grade:grade",
    "toolchain": "cli.toolchain:toolchain",
    "serve-tinker": "cli.serve_tinker:serve_tinker",
    "check": "cli.check:check",
    "check-service": "cli.check_service:check_service",
    "train": "cli.train:train",
    "validate": "cli.validate:validate",
    "problems": "cli.synthesize:problems",
    "evaluate": "cli.evaluate:evaluate",
    "config": "cli.config:config",
    "pause": "cli.pause:pause",
    "resume": "cli.pause:resume",
    "regrade": "cli.regrade:regrade",
    "audit": "cli.audit:audit",
    "checkpoints": "cli.checkpoints:checkpoints",
    "estimate": "cli.estimate:estimate",
    "deploy": "cli.deploy:deploy",
    "report": "cli.report:report",
    "query": "cli.query:query",
    "show": "cli.show:show",
    "debug": "cli.debug:debug",
    "compare": "cli.compare:compare",
    "watch": "cli.watch:watch",
    "view": "cli.view:view",
    "snapshot": "cli.snapshot:snapshot",
    "export": "cli.export:export",
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
        console.print(
            f"error: {error.message}", style="bold red", markup=False, emoji=False, highlight=False, soft_wrap=True
        )
        if error.hint:
            console.print(f"  -> {error.hint}", markup=False, emoji=False, highlight=False, soft_wrap=True)
        sys.exit(error.exit_code)
