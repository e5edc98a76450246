"""What the commands that look at the history share: which file, which run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rtl_core.history.store import History

DbOption = Annotated[
    Path | None,
    typer.Option("--db", metavar="PATH", help="The history (default: $RTL_DISTILL_DB, else runs/history.duckdb)."),
]


def database_path(db: Path | None) -> Path:
    """The file that a command means."""
    return db or Path(os.environ.get("RTL_DISTILL_DB") or "runs/history.duckdb")


def open_history(db: Path | None) -> History:
    """The history for reading."""
    from rtl_core.history.store import History

    return History(database_path(db), read_only=True)


def pick_run(history: History, name: str | None) -> str:
    """The named run, or the newest. HistoryError when there is no such run, or none at all."""
    from rtl_core.errors import HistoryError

    if name is not None:
        return history.existing_run(name).name
    runs = history.runs()
    if not runs:
        raise HistoryError(f"there is no run in {history.path}", "start one: rtl-distill train")
    return runs[0].name
