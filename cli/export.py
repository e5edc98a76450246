"""`rtl-distill export`: the history for other programs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rtl_distill.cli.database import DbOption, open_history, pick_run


class Format(StrEnum):
    """What is written."""

    PARQUET = "parquet"
    ROLLOUTS = "rollouts"
    METRICS = "metrics"
    ALL = "all"


def export(
    run: Annotated[str | None, typer.Argument(help="The run (default: the newest).")] = None,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="Folder to write to (default: export-RUN).")
    ] = None,
    format_: Annotated[Format, typer.Option("--format", "-f", help="What to write.")] = Format.ALL,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="Rollouts with token ids and both models' log-probabilities.")
    ] = False,
    db: DbOption = None,
) -> None:
    """Write a run as files: one Parquet file a table, rollouts.jsonl, metrics.jsonl (a line a step, the community's names).

    Examples:

        rtl-distill export demo --to /tmp/demo

        rtl-distill export demo -f metrics --to runs/demo
    """
    from rtl_core.history import export as exports

    history = open_history(db)
    name = pick_run(history, run)
    folder = to or Path(f"export-{name}")
    if format_ in (Format.PARQUET, Format.ALL):
        for path in exports.export_parquet(history, name, folder):
            typer.echo(str(path))
    if format_ in (Format.ROLLOUTS, Format.ALL):
        count = exports.export_rollouts(history, name, folder / "rollouts.jsonl", tokens=tokens)
        typer.echo(f"{folder / 'rollouts.jsonl'}: {count} rollouts")
    if format_ in (Format.METRICS, Format.ALL):
        count = exports.export_metrics(history, name, folder / "metrics.jsonl")
        typer.echo(f"{folder / 'metrics.jsonl'}: {count} lines")
