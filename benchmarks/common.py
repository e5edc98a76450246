"""Shared by the benchmarks: options, tables, files, `rtl-distill` as a subprocess, finding processes."""

import argparse
import contextlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table

from localtinker.errors import LocalTinkerError
from rtl_core.errors import UserError

ROOT = Path(__file__).resolve().parent.parent
NUMBER = re.compile(r"[-+<>≤≥=·–.\d\s]*(\d|$)")
Result = TypeVar("Result")
DATA = Path(os.environ.get("RTL_DISTILL_DATA", ROOT.parent / "shared/data"))


EVERY_STEP_WITH_TEACHER = (
    "learning.warm_start_steps=0",
    "learning.kl_schedule=constant",
    "learning.replace_with_kl=false",
)
"""Overrides for a run whose steps are all RL steps with the teacher's scores."""


def options(
    doc: str | None, *, data: bool = False, overrides: bool = False, **others: Any
) -> argparse.ArgumentParser:
    """An argument parser whose description is a module's docstring. `data` adds `--data`, `overrides` adds `--set`.

    Each of `others` is an option: `rounds=5`, or `rounds=(5, "help")`, is `--rounds` with 5 as the default.
    A list is an option with several comma-separated values (of several names, only these), False a switch,
    and a type an option without a default. An error of ours that ends the program is then shown without a
    traceback.
    """
    sys.excepthook = _show_error
    spec = sys.modules["__main__"].__spec__
    program = f"python -m {spec.name.removesuffix('.__main__')}" if spec else None
    parser = argparse.ArgumentParser(
        program, description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if data:
        parser.add_argument(
            "--data", type=Path, default=DATA, help="folder of the published sets"
        )
    if overrides:
        what = "override a key of the configuration; repeatable"
        parser.add_argument(
            "--set",
            action="append",
            default=[],
            metavar="KEY=VALUE",
            dest="overrides",
            help=what,
        )
    for name, given in others.items():
        default, what = given if isinstance(given, tuple) else (given, "")
        flag = f"--{name.replace('_', '-')}"
        if default is False:
            parser.add_argument(flag, action="store_true", help=what)
        elif isinstance(default, type):
            parser.add_argument(flag, type=default, help=what)
        else:
            several = partial(_several, default) if isinstance(default, list) else None
            shown = ",".join(map(str, default)) if several else default
            parser.add_argument(
                flag,
                type=several or type(default),
                default=default,
                help=f"{what} ({shown})".lstrip(),
            )
    return parser


def _several(default: list[Any], text: str) -> list[Any]:
    kind = type(default[0])
    values = [kind(value) for value in text.split(",") if value]
    unknown = (
        [value for value in values if value not in default]
        if kind is str and len(default) > 1
        else []
    )
    if unknown or not values:
        raise argparse.ArgumentTypeError(
            f"{', '.join(unknown) or 'nothing'} is none of {', '.join(map(str, default))}"
        )
    return values


def _show_error(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if not isinstance(error, UserError | LocalTinkerError):
        sys.__excepthook__(kind, error, trace)
    else:
        print(f"error: {error}", file=sys.stderr)


def command(*words: object, sets: Iterable[str] = ()) -> list[str]:
    """The command line of `rtl-distill` with these arguments, in this Python, with `--set` for each override."""
    return [
        sys.executable,
        "-m",
        "rtl_distill.cli",
        *map(str, words),
        *(f"--set={override}" for override in sets),
    ]


def run_settings(name: str, folder: Path, history: Path | str = "history.duckdb") -> list[str]:
    """Overrides for a run of this name that keeps its files and its history in `folder`, or the history at
    another (absolute) path."""
    return [f"run.name={name}", f"run.directory={folder}", f"run.history={folder / history}"]


def show(
    title: str | None,
    columns: Sequence[str],
    rows: Iterable[Sequence[Any] | None],
    width: int = 120,
) -> None:
    """Print a table, with numbers aligned to the right. A row of None starts a new section."""
    lines = [None if row is None else [str(cell) for cell in row] for row in rows]
    table = Table(title=title)
    for place, column in enumerate(columns):
        numbers = all(NUMBER.match(line[place]) for line in lines if line and line[place])
        table.add_column(column, justify="right" if numbers else "left")
    for line in lines:
        if line is None:
            table.add_section()
        else:
            table.add_row(*line)
    (Console() if sys.stdout.isatty() else Console(width=width)).print(table)


def in_turns(ways: Mapping[str, Callable[[], Result]], rounds: int) -> dict[str, list[Result]]:
    """Call each way once a round, in turns, so that other load on the machine affects all alike; return the
    results by way. A first round warms up and is dropped."""
    found: dict[str, list[Result]] = {name: [] for name in ways}
    for _ in range(rounds + 1):
        for name, way in ways.items():
            found[name].append(way())
    return {name: values[1:] for name, values in found.items()}


class Log:
    """Rows of results in a file of JSON Lines, with which an interrupted benchmark goes on; without a file, a list."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.rows: list[Any] = []
        if path and path.exists():
            self.rows += map(json.loads, path.read_text().splitlines())

    def add(self, rows: Sequence[Any]) -> None:
        self.rows += rows
        if self.path:
            with self.path.open("a") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)


def write_jsonl(path: Path, rows: Iterable[object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def marked(mark: str, file: str = "environ") -> list[int]:
    """PIDs of the other processes on this machine that have `mark` in their environment or
    (`file="cmdline"`) command line."""
    found = []
    for entry in Path("/proc").glob(f"[0-9]*/{file}"):
        with contextlib.suppress(OSError):  # the process has ended
            if mark.encode() in entry.read_bytes() and int(entry.parent.name) != os.getpid():
                found.append(int(entry.parent.name))
    return found


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines
    )
