"""Arguments that several commands take, and what they mean: which configuration, which history, which run."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rtl_core.errors import HistoryError

if TYPE_CHECKING:
    from rtl_core.history.store import History

# By their files: `rtl_core.config`, which lists them too, imports what `--help` should not wait for.
_SHIPPED = sorted(
    path.name.removesuffix(".toml") for path in resources.files("rtl_core").joinpath("config", "shipped").iterdir()
)
_CONFIG = f"A TOML file, or a shipped configuration: {', '.join(_SHIPPED)}."

ConfigArgument = Annotated[str, typer.Argument(help=_CONFIG)]
ConfigOption = Annotated[str, typer.Option("--config", help=_CONFIG)]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override one key; may be repeated.")
]
SourceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--source",
        metavar="KIND[=PATH]",
        help="This set instead of the configuration's, such as cvdp=PATH; `rtl-distill problems sources` lists all. May be repeated.",
    ),
]
PurposeOption = Annotated[Literal["all", "train", "evaluation"], typer.Option(help="Which rollouts.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", help="Show Prefect's own log lines too.")]
DbOption = Annotated[
    Path | None,
    typer.Option("--db", metavar="PATH", help="The history (default: $RTL_DISTILL_DB, else runs/history.duckdb)."),
]
RunArgument = Annotated[str, typer.Argument(help="Name of the run.")]
NewestRunArgument = Annotated[str | None, typer.Argument(help="The run (default: the newest).")]
RolloutArgument = Annotated[str, typer.Argument(help="Key of a rollout, or its end where that is enough to tell it.")]


def database_path(db: Path | None) -> Path:
    """The file that a command means."""
    return db or Path(os.environ.get("RTL_DISTILL_DB") or "runs/history.duckdb")


def open_history(db: Path | None, *, forward: bool = False) -> History:
    """The history for reading. `forward`: one of an older schema is migrated first, for commands that go on with a run."""
    from rtl_core.history.store import History

    path = database_path(db)
    return History(path, read_only=not (forward and path.is_file()))


def pick_run(history: History, name: str | None) -> str:
    """The named run, or the newest. HistoryError when there is no such run, or none at all."""
    if name is not None:
        return history.existing_run(name).name
    runs = history.runs()
    if not runs:
        raise HistoryError(f"there is no run in {history.path}", "start one: rtl-distill train")
    return runs[0].name
