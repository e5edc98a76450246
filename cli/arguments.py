"""Arguments and options that several commands share: configuration, history, run."""

from __future__ import annotations

import sys
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rtl_core.errors import HistoryError

if TYPE_CHECKING:
    from rtl_core.history.store import History

# Listed from the files, because importing `rtl_core.config` would slow down `--help`.
_SHIPPED = sorted(
    path.name.removesuffix(".toml")
    for path in resources.files("rtl_core").joinpath("config", "shipped").iterdir()
)
_CONFIG = f"A TOML file, or a shipped configuration: {', '.join(_SHIPPED)}."

ConfigArgument = Annotated[str, typer.Argument(help=_CONFIG)]
ConfigOption = Annotated[str, typer.Option("--config", help=_CONFIG)]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="SECTION.KEY=VALUE", help="Override one key; may be repeated."
    ),
]
SourceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--source",
        metavar="KIND[=PATH]",
        help=(
            "Use this problem set instead of the configuration's, e.g. cvdp=PATH; `rtl-distill "
            "problems sources` lists all. May be repeated."
        ),
    ),
]
PurposeOption = Annotated[
    Literal["all", "train", "evaluation"], typer.Option(help="Which rollouts to include.")
]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", help="Show Prefect's own log lines too.")
]
ExecutorName = Literal["bubblewrap", "docker"]
HISTORY = Path("runs/history.duckdb")
DbOption = Annotated[
    Path,
    typer.Option("--db", "--history", envvar="RTL_DISTILL_DB", help="History file."),
]
RunArgument = Annotated[str, typer.Argument(help="Name of the run.")]
NewestRunArgument = Annotated[
    str | None, typer.Argument(help="Name of the run (default: the newest).")
]
RolloutArgument = Annotated[
    str, typer.Argument(help="Key of a rollout, or an unambiguous end of it.")
]


def announce(work: str) -> None:
    """Say on a terminal, before heavy imports, what the command does now."""
    if sys.stderr.isatty():
        typer.echo(work, err=True)


def open_history(db: Path, *, forward: bool = False) -> History:
    """Open the history for reading. `forward` opens an existing one for writing."""
    from rtl_core.history.store import History

    return History(db, read_only=not (forward and db.is_file()))


def pick_run(history: History, name: str | None) -> str:
    """Return the named run, or the newest. Raises HistoryError when there is none."""
    if name is not None:
        return history.existing_run(name).name
    runs = history.runs()
    if not runs:
        raise HistoryError(f"there is no run in {history.path}", "start one: rtl-distill train")
    return runs[0].name
