"""`rtl-distill snapshot`: a copy of the history to work on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rtl_distill.cli.database import DbOption, database_path


def snapshot(
    target: Annotated[Path, typer.Argument(help="The copy to write.")],
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
    db: DbOption = None,
) -> None:
    """Copy the history while a run may be writing it; the copy is whole, and of the newest schema.

    Long queries, notebooks and other programs belong on a copy: whoever keeps the history itself open makes the run wait.

    Examples:

        rtl-distill snapshot /tmp/today.duckdb

        rtl-distill query --db /tmp/today.duckdb "SUMMARIZE verdicts"
    """
    from rtl_core.history.export import take_snapshot

    typer.echo(str(take_snapshot(database_path(db), target, overwrite=force)))
