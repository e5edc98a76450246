"""What the benchmarks share: options, tables, the folder of the published sets, `rtl-distill` as a process, processes that bear a mark."""

import argparse
import contextlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
NUMBER = re.compile(r"[-+<>≤≥=·–.\d\s]*(\d|$)")
Made = TypeVar("Made")
DATA = Path(os.environ.get("RTL_DISTILL_DATA", ROOT.parent / "shared/data"))


def options(doc: str | None, *, data: bool = False, overrides: bool = False, **others: Any) -> argparse.ArgumentParser:
    """A parser that describes a module by its docstring; `data`: with `--data`, the folder of the published sets; `overrides`: with `--set`, whose
    values have this name.

    Each of `others` is an option: `rounds=5`, or `rounds=(5, "help")`, is `--rounds` with a number, 5 unless it is given. A list stands for
    several names or whole numbers, apart by commas; False for a switch; a type for an option without a default.
    """
    spec = sys.modules["__main__"].__spec__
    program = f"python -m {spec.name.removesuffix('.__main__')}" if spec else None
    parser = argparse.ArgumentParser(program, description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    if data:
        parser.add_argument("--data", type=Path, default=DATA, help="folder of the published sets")
    if overrides:
        what = "override a key of the configuration; repeatable"
        parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides", help=what)
    for name, given in others.items():
        default, what = given if isinstance(given, tuple) else (given, "")
        flag = f"--{name.replace('_', '-')}"
        if default is False:
            parser.add_argument(flag, action="store_true", help=what)
        elif isinstance(default, type):
            parser.add_argument(flag, type=default, help=what)
        else:
            several = partial(_several, type(default[0])) if isinstance(default, list) else None
            shown = ",".join(map(str, default)) if several else default
            parser.add_argument(flag, type=several or type(default), default=default, help=f"{what} ({shown})".lstrip())
    return parser


def _several(kind: type, text: str) -> list[Any]:
    """The values of an option that takes several, apart by commas."""
    return [kind(one) for one in text.split(",") if one]


def command(*words: object, sets: Iterable[str] = ()) -> list[str]:
    """`rtl-distill` with these words as a command of this Python, and `--set` for each override."""
    return [sys.executable, "-m", "rtl_distill.cli", *map(str, words), *(f"--set={one}" for one in sets)]


def show(title: str | None, columns: Sequence[str], rows: Iterable[Sequence[Any] | None], width: int = 120) -> None:
    """Print a table, numbers on the right; None is a line between two sections."""
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


def in_turns(ways: Mapping[str, Callable[[], Made]], rounds: int, settle_s: float = 0.0) -> dict[str, list[Made]]:
    """What each way gives in each round. They take turns, so that what else the machine does falls on all; a first round, which starts what
    starts once, does not count. The pause before each keeps what another one clears up out of its time."""
    found: dict[str, list[Made]] = {name: [] for name in ways}
    for _ in range(rounds + 1):
        for name, way in ways.items():
            time.sleep(settle_s)
            found[name].append(way())
    return {name: values[1:] for name, values in found.items()}


def marked(mark: str, file: str = "environ") -> list[int]:
    """Processes of this machine, but for this one, that have a text in their environment or, by `cmdline`, in their command line."""
    found = []
    for entry in Path("/proc").glob(f"[0-9]*/{file}"):
        with contextlib.suppress(OSError):  # it has ended
            if mark.encode() in entry.read_bytes() and int(entry.parent.name) != os.getpid():
                found.append(int(entry.parent.name))
    return found


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)
