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
from typing import Annotated

import typer

from localtinker.errors import LocalTinkerError
from rtl_core import COMMANDS as GRADER_COMMANDS
from rtl_core import __version__
from rtl_core.errors import ConfigError
from rtl_grader.cli.running import run
from rtl_grader.words import did_you_mean

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
    "problems list": "problems:list_",
    "problems show": "problems:show",
    "problems sources": "rtl_grader.cli.problems:sources",
    "problems fetch": "rtl_grader.cli.problems:fetch",
    "problems new": "rtl_grader.cli.folders:new",
    "problems check": "rtl_grader.cli.folders:check",
    "problems validate": "problems:validate",
    "problems stats": "problems:stats",
    "problems play": "playing:play",
    "problems describe": "describing:describe",
    "problems doubt": "describing:doubt",
    "problems repair": "rtl_grader.cli.repair:repair",
    "problems synthesize": "problems:synthesize",
    "problems export": "problems:export",
    "grade answers": "rtl_grader.cli.grade:grade",
    "grade again": "grade:regrade",
    "grade reproduce": "grade:reproduce",
    "grade audit": "grade:audit",
    "serve grader": "service:serve_grader",
    "serve tinker": "localtinker.cli:serve_tinker",
    "serve bridge": "localtinker.cli:bridge",
    "deploy": "setup:deploy",
    "admin checkpoints": "training:checkpoints",
    "admin cost": "accounts:cost",
    "admin export": "history:export",
    "admin snapshot": "history:snapshot",
    "admin set-aside": "training:set_aside",
    "admin engine": "setup:engine",
    "admin toolchain": "rtl_grader.cli.toolchain:toolchain",
    "admin check-service": "localtinker.cli:check_service",
    "admin fetch-model": "setup:fetch_model",
    "admin models": "setup:make_models",
}
"""Words of a command -> its function, whose docstring is the help text; those of the two packages with a dot."""

GROUPS: dict[str, str] = {
    "problems": "Make, look at, validate and export problems, or fetch a set from the Hugging Face hub.",
    "grade": "Grade answers, and check recorded verdicts.",
    "serve": "Serve the grader, models over Tinker's protocol, or a bridge to an engine of your own.",
    "admin": "Weights, files, tools and models of this machine.",
}
"""Group of commands -> its help text."""

PANELS: dict[str, str] = {
    "Train": "train check resume pause watch",
    "Look": "evaluate compare report show view query",
}
"""Panel of `--help` -> its commands; the others are in the panel of groups."""

RENAMED: dict[str, str] = {
    **GRADER_COMMANDS,
    "audit": "grade audit",
    "bridge": "serve bridge",
    "check-service": "admin check-service",
    "checkpoints": "admin checkpoints",
    "config": "check --show",
    "debug": "show --debug",
    "engine": "admin engine",
    "episode": "problems play",
    "estimate": "check --estimate",
    "export": "admin export",
    "fetch-model": "admin fetch-model",
    "make-models": "admin models",
    "regrade": "grade again",
    "serve-tinker": "serve tinker",
    "set-aside": "admin set-aside",
    "snapshot": "admin snapshot",
}
"""Former name of a command, a short one, or its name in another package -> its words here. They go with the next
version."""

app = typer.Typer(
    name="rtl-distill",
    help="Train a language model to write RTL with simulator verdicts and on-policy distillation.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(version: bool) -> None:
    if version:
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
    panel = next((title for title, names in PANELS.items() if name in names.split()), "Groups")
    if name not in GROUPS:
        _add_command(app, name, panel)
        return
    group = typer.Typer(help=GROUPS[name], no_args_is_help=True, rich_markup_mode="markdown")
    members = [words for words in COMMANDS if words.startswith(f"{name} ")]
    texts = [_add_command(group, words) for words in members]
    short = _short(GROUPS[name], texts[0])
    app.add_typer(group, name=name, short_help=short, rich_help_panel=panel)


def _add_command(group: typer.Typer, words: str, panel: str | None = None) -> str:
    """Add a command to a group; returns its help text."""
    module, name = COMMANDS[words].split(":")
    path = module if "." in module else f"rtl_distill.cli.{module}"
    function = getattr(importlib.import_module(path), name)
    text = inspect.cleandoc(function.__doc__)
    # Commands of the other packages have other names there.
    text = re.sub(r"(?:rtl-grader|localtinker) ([a-z][a-z-]*)", _words_here, text)
    short = _short(text, text)
    group.command(words.split()[-1], help=text, short_help=short, rich_help_panel=panel)(
        function
    )
    return text


def _words_here(name: re.Match[str]) -> str:
    return f"rtl-distill {RENAMED.get(name[1], name[1])}"


def _short(about: str, text: str) -> str:
    """The first paragraph of `about` and, on a line of its own, the first example in `text`."""
    paragraph = " ".join(about.split("\n\n")[0].split())
    example = re.search(r"^    (rtl-distill.*?)(?:  #.*| \\)?$", text, re.M)
    assert example, "every command has an example"
    return f"\b\n{paragraph}  \n`{example[1]}`"


def in_new_words(words: list[str]) -> list[str]:
    """Return a command line with the new words of a renamed command; prints a note to standard error then."""
    old, *rest = words or [""]
    new = RENAMED.get(old)
    if old == "grade":  # also the name of a group; the former command required --answers
        is_former = any(word.split("=")[0] == "--answers" for word in rest)
        new = new if is_former and f"grade {rest[0]}" not in COMMANDS else None
    if new is None:
        return words
    if old == "estimate" and not rest:
        rest = ["cvdp"]  # what it was for without a configuration
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
        names = {words.split()[-1]: words for words in reversed(COMMANDS)}
        names = {**RENAMED, **names, **dict(zip(GROUPS, GROUPS, strict=True))}
        hint = did_you_mean(
            name, names, "`rtl-distill --help` lists all", written=names.__getitem__
        )
        raise ConfigError(f"there is no command {name!r}", hint)
    app()
