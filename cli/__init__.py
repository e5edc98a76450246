"""The console script `rtl-distill`: one module per command, listed here.

Command modules import what is heavy (torch, Prefect, pyslang) inside their functions, so that `--help` is quick.
"""

from __future__ import annotations

import functools
import importlib
import sys

import typer
from rich.console import Console

from rtl_core.errors import RtlDistillError

# command name -> "module:function"; the function's docstring is its help.
COMMANDS: dict[str, str] = {
    "make-models": "rtl_distill.cli.make_models:make_models",
    "fetch-model": "rtl_distill.cli.fetch_model:fetch_model",
    "grade": "rtl_distill.cli.grade:grade",
    "toolchain": "rtl_distill.cli.toolchain:toolchain",
    "serve-tinker": "rtl_distill.cli.serve_tinker:serve_tinker",
    "check": "rtl_distill.cli.check:check",
    "check-service": "rtl_distill.cli.check_service:check_service",
    "train": "rtl_distill.cli.train:train",
    "validate": "rtl_distill.cli.validate:validate",
    "problems": "rtl_distill.cli.synthesize:problems",
    "evaluate": "rtl_distill.cli.evaluate:evaluate",
    "config": "rtl_distill.cli.config:config",
    "pause": "rtl_distill.cli.pause:pause",
    "resume": "rtl_distill.cli.pause:resume",
    "set-aside": "rtl_distill.cli.set_aside:set_aside",
    "regrade": "rtl_distill.cli.regrade:regrade",
    "audit": "rtl_distill.cli.audit:audit",
    "checkpoints": "rtl_distill.cli.checkpoints:checkpoints",
    "estimate": "rtl_distill.cli.estimate:estimate",
    "deploy": "rtl_distill.cli.deploy:deploy",
    "report": "rtl_distill.cli.report:report",
    "query": "rtl_distill.cli.query:query",
    "show": "rtl_distill.cli.show:show",
    "debug": "rtl_distill.cli.debug:debug",
    "compare": "rtl_distill.cli.compare:compare",
    "watch": "rtl_distill.cli.watch:watch",
    "view": "rtl_distill.cli.view:view",
    "snapshot": "rtl_distill.cli.snapshot:snapshot",
    "export": "rtl_distill.cli.export:export",
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
    """Import every command and give it to `app`, once a process."""
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
