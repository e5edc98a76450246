"""The console script `rtl-distill`: commands for runs at the first level, all others in five groups.

A command's module is imported when the command or its group is called, and all of them for `--help`. The modules
import heavy packages (torch, Prefect, pyslang) inside their functions, so that `--help` is fast.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from localtinker.errors import LocalTinkerError
from rtl_core import __version__
from rtl_core.errors import ConfigError
from rtl_grader.cli.running import run
from rtl_grader.words import did_you_mean

if TYPE_CHECKING:
    from typer.models import CommandInfo

COMMANDS: dict[str, str] = {
    "train": "training:train",
    "check": "checking:check",
    "resume": "training:resume",
    "pause": "training:pause",
    "watch": "results:watch",
    "evaluate": "evaluating:evaluate",
    "compare": "results:compare",
    "report": "results:report",
    "show": "results:show",
    "view": "results:view",
    "query": "history:query",
    "problems": "problems:problems",
    "grade answers": "rtl_grader.cli.grade:grade",
    "grade again": "grade:regrade",
    "grade reproduce": "grade:reproduce",
    "grade audit": "grade:audit",
    "serve grader": "service:serve_grader",
    "serve tinker": "localtinker.cli:serve_tinker",
    "deploy": "setup:deploy",
    "admin checkpoints": "training:checkpoints",
    "admin export": "history:export",
    "admin snapshot": "history:snapshot",
    "admin set-aside": "training:set_aside",
    "admin toolchain": "rtl_grader.cli.toolchain:toolchain",
    "admin check-service": "localtinker.cli:check_service",
    "admin fetch-model": "setup:fetch_model",
    "admin models": "setup:make_models",
}
"""Words of a command -> its function, whose docstring is the help text, or a Typer of its own; those of the two
packages with a dot."""

GROUPS: dict[str, str] = {
    "grade": "Grade answers, and check recorded verdicts.",
    "serve": "Serve the grader, or models over Tinker's protocol.",
    "admin": "Weights, files, tools and models of this machine.",
}
"""Group of commands -> its help text."""

PANELS: dict[str, str] = {
    **dict.fromkeys(("train", "check", "resume", "pause", "watch"), "Train"),
    **dict.fromkeys(("evaluate", "compare", "report", "show", "view", "query"), "Look"),
}
"""Command -> its panel in `--help`; the others are in the panel of groups."""

RENAMED: dict[str, str] = {
    "audit": "grade audit",
    "check-service": "admin check-service",
    "checkpoints": "admin checkpoints",
    "config": "check",
    "debug": "show --debug",
    "episode": "problems play",
    "estimate": "check --estimate",
    "export": "admin export",
    "fetch-model": "admin fetch-model",
    "grade": "grade answers",
    "make-models": "admin models",
    "regrade": "grade again",
    "reproduce": "grade reproduce",
    "serve-grader": "serve grader",
    "serve-tinker": "serve tinker",
    "set-aside": "admin set-aside",
    "snapshot": "admin snapshot",
    "toolchain": "admin toolchain",
    "validate": "problems validate",
}
"""Former name of a command, or its name in another package -> its words here. They go with the next version."""

app = typer.Typer(
    name="rtl-distill",
    help="Train a language model to write RTL with simulator verdicts and on-policy distillation.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rtl-distill {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    pass


def register(*names: str) -> None:
    """Import the named commands and groups of the first level, or all, and add them to `app`."""
    for name in names or dict.fromkeys(words.split()[0] for words in COMMANDS):
        _add(name)


@functools.cache
def _add(name: str) -> None:
    """Add a command or group to `app`, once per process."""
    panel = PANELS.get(name, "Groups")
    group = _new_group(name) if name in GROUPS else _function(COMMANDS[name])
    if not isinstance(group, typer.Typer):
        app.command(name, rich_help_panel=panel)(group)
        _describe(app.registered_commands[-1])
        return
    for info in group.registered_commands:
        _describe(info)
    about = f"{group.info.help}\n\n{_example(group.registered_commands[0].help)}"
    app.add_typer(group, name=name, short_help=_short(about), rich_help_panel=panel)


def _new_group(name: str) -> typer.Typer:
    group = typer.Typer(help=GROUPS[name], no_args_is_help=True, rich_markup_mode="markdown")
    for words, target in COMMANDS.items():
        first, *rest = words.split()
        if first == name:
            group.command(*rest)(_function(target))
    return group


def _function(target: str) -> Any:
    """Return the command at `module:function`; a module without a dot is one of this package."""
    module, name = target.split(":")
    path = module if "." in module else f"rtl_distill.cli.{module}"
    return getattr(importlib.import_module(path), name)


def _describe(info: CommandInfo) -> None:
    """Give a command its help texts: other packages' commands by their names here, and one example in lists."""
    text = inspect.cleandoc(info.callback.__doc__ or "")
    info.help = re.sub(r"(?:rtl-grader|localtinker) ([a-z][a-z-]*)", _name_here, text)
    info.short_help = _short(info.help)


def _name_here(name: re.Match[str]) -> str:
    return f"rtl-distill {RENAMED.get(name[1], name[1])}"


def _example(text: str) -> str:
    """The first example in a help text, as an indented line."""
    return next(line for line in text.splitlines() if line.startswith("    rtl-distill"))


def _short(text: str) -> str:
    """The first paragraph of a help text and, on a line of its own, its first example without comment."""
    about = " ".join(text.split("\n\n")[0].split())
    example = _example(text).split("  #")[0].strip(" \\")
    return f"\b\n{about}  \n`{example}`"


def in_new_words(words: list[str]) -> list[str]:
    """Return a command line with the new words of a renamed command; prints a note to standard error then."""
    old, *rest = words or [""]
    new = RENAMED.get(old)
    if old == "grade":  # also the name of a group; the former command required --answers
        is_former = any(word.split("=")[0] == "--answers" for word in rest)
        new = new if is_former and f"grade {rest[0]}" not in COMMANDS else None
    if new is None:
        return words
    typer.echo(f"note: `rtl-distill {old}` is now `rtl-distill {new}`", err=True)
    return [*new.split(), *rest]


def main() -> None:
    """Run the command line. User errors print one message and set the exit code; other errors keep their traceback."""
    sys.argv[1:] = in_new_words(sys.argv[1:])
    run(_run, LocalTinkerError)


def _run() -> None:
    known = {words.split()[0] for words in COMMANDS}
    name = next(iter(sys.argv[1:]), "-")
    register(*([name] if name in known else []))
    if name not in known and not name.startswith("-"):
        names = _every_command()
        hint = did_you_mean(
            name, names, "`rtl-distill --help` lists all", written=names.__getitem__
        )
        raise ConfigError(f"there is no command {name!r}", hint)
    app()


def _every_command() -> dict[str, str]:
    """Last word of each command, and each former name -> its words; after `register()`."""
    names = {f"{info.name}": f"{info.name}" for info in app.registered_commands}
    for group in app.registered_groups:
        names[f"{group.name}"] = f"{group.name}"
        for info in group.typer_instance.registered_commands:
            name = info.name or info.callback.__name__
            names.setdefault(name, f"{group.name} {name}")
    return {**RENAMED, **names}
