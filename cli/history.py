"""Access to the history of all runs: `query` it, take a `snapshot`, or `export` a run as files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rtl_core.errors import HistoryError
from rtl_distill.cli.arguments import (
    HISTORY,
    DbOption,
    NewestRunArgument,
    open_history,
    pick_run,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from rtl_core.history.store import History

Output = Literal["table", "csv", "json"]
Format = Literal["parquet", "rollouts", "metrics", "verdicts", "all"]


def query(
    question: Annotated[
        str | None, typer.Argument(help="SQL, or the name of a query from --list.")
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(
            "--run", help="Run for a named query, or for `$run` in SQL (default: the newest)."
        ),
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(
            "--param",
            "-p",
            metavar="NAME=VALUE",
            help="Parameter of the query. May be repeated.",
        ),
    ] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = "table",
    limit: Annotated[
        int, typer.Option("--limit", min=0, help="Maximum rows of a table; 0 for all.")
    ] = 200,
    list_: Annotated[bool, typer.Option("--list", help="List the named queries.")] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the schema with its comments.")
    ] = False,
    db: DbOption = HISTORY,
) -> None:
    """Query the history of all runs, with SQL or a named query. This works while a run is writing to it.

    Examples:

        rtl-distill query --list

        rtl-distill query pass-rate --run demo

        rtl-distill query mistakes -p limit=20 -o csv

        rtl-distill query "SELECT outcome, count(*) FROM verdicts GROUP BY outcome"
    """
    if list_:
        _list()
        return
    if schema:
        from importlib.resources import files

        typer.echo((files("rtl_core.history") / "schema.sql").read_text(encoding="utf-8"))
        return
    if not question:
        raise HistoryError(
            "ask something", "SQL in quotes, or a name from `rtl-distill query --list`"
        )
    history = open_history(db)
    answer = _answer(history, question, run, _parameters(param or []))
    _print(answer, output, limit)
    from rtl_core.history.named_queries import named_queries

    if not answer.num_rows and question in named_queries():
        typer.echo(f"no rows of: {named_queries()[question].about}", err=True)


def _parameters(texts: list[str]) -> dict[str, Any]:
    """Return the values of `--param` by name."""
    parameters = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise HistoryError(
                f"--param {text!r} is not NAME=VALUE", "for example --param limit=20"
            )
        parameters[name.strip()] = value
    return parameters


def _answer(
    history: History, question: str, run: str | None, parameters: dict[str, Any]
) -> pa.Table:
    """Answer a named query or SQL; `run` is the value of its `$run`, by default the newest."""
    from rtl_core.history.named_queries import named_query

    if len(question.split()) == 1:
        recipe = named_query(question)
        bound = recipe.bind(parameters, pick_run(history, run) if recipe.needs_run else None)
        return history.query(recipe.sql, bound or None)
    if "$run" in question:
        parameters["run"] = pick_run(history, run)
    elif run is not None:
        raise HistoryError(
            "the SQL does not use --run", "restrict it, for example by WHERE run = $run"
        )
    return history.query(question, parameters or None)


def _list() -> None:
    from rtl_core.history.named_queries import named_queries

    table = Table("name", "answers", "parameters (default)", box=box.SIMPLE_HEAD)
    for query_ in named_queries().values():
        parameters = [f"{name} ({default})" for name, default in query_.parameters.items()]
        table.add_row(query_.name, query_.about, "\n".join(parameters))
    Console().print(table)


def _print(answer: pa.Table, output: Output, limit: int) -> None:
    import sys

    if output == "json":
        import json

        from rtl_core.reporting.text import finite

        json.dump(
            finite(answer.to_pylist()), sys.stdout, indent=2, default=_plain, ensure_ascii=False
        )
        sys.stdout.write("\n")
    elif output == "csv":
        import csv

        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(answer.column_names)
        writer.writerows(_rows(answer))
    else:
        _table(answer, limit)


def _rows(answer: pa.Table) -> list[tuple[Any, ...]]:
    """The rows; a join without USING has several columns of one name, which a mapping by name would merge."""
    return list(zip(*(column.to_pylist() for column in answer.columns), strict=True))


def _plain(value: Any) -> int | float | str:
    """Convert a value that JSON has no type for: DuckDB's wide decimal sums, and timestamps (ISO 8601, UTC)."""
    from datetime import datetime
    from decimal import Decimal

    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, datetime):
        return value.isoformat() if value.tzinfo else f"{value.isoformat()}Z"
    return str(value)


def _table(answer: pa.Table, limit: int) -> None:
    """Print a table, or one record below the other if the terminal is too narrow for the headings."""
    import pyarrow as pa

    from rtl_core.reporting.text import cell

    console = Console()
    if not console.is_terminal:
        console.width = 10_000  # do not fold in a file or pipe
    part = answer if limit == 0 else answer.slice(0, limit)
    rows = [[Text(cell(value)) for value in row] for row in _rows(part)]
    if sum(len(name) + 2 for name in answer.column_names) <= console.width:
        table = Table(box=box.SIMPLE_HEAD)
        for field in answer.schema:
            kind = field.type
            numeric = (
                pa.types.is_integer(kind)
                or pa.types.is_floating(kind)
                or pa.types.is_decimal(kind)
            )
            table.add_column(
                Text(field.name), justify="right" if numeric else "left", overflow="fold"
            )
        for row in rows:
            table.add_row(*row)
        console.print(table)
    else:
        for number, row in enumerate(rows, 1):
            console.rule(f"row {number}", align="left", style="dim")
            record = Table.grid("name", "value", padding=(0, 2))
            for name, value in zip(answer.column_names, row, strict=True):
                record.add_row(Text(name, style="bold"), value)
            console.print(record)
    if part.num_rows < answer.num_rows:
        console.print(
            f"{part.num_rows} of {answer.num_rows} rows; --limit 0 shows all", style="dim"
        )
    elif answer.num_rows == 0:
        console.print("no rows", style="dim")


def snapshot(
    target: Annotated[Path, typer.Argument(help="Path of the copy.")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    db: DbOption = HISTORY,
) -> None:
    """Copy the history, even while a run is writing to it. The copy is consistent.

    Use a copy for long queries, notebooks and other programs: a program that keeps the history itself open
        makes the run wait.

    Examples:

        rtl-distill admin snapshot /tmp/today.duckdb

        rtl-distill query --db /tmp/today.duckdb "SUMMARIZE verdicts"
    """
    from rtl_core.history.export import take_snapshot

    typer.echo(str(take_snapshot(db, target, overwrite=force)))


def export(
    run: NewestRunArgument = None,
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="DIR", help="Output folder (default: export-RUN)."),
    ] = None,
    format_: Annotated[Format, typer.Option("--format", "-f", help="What to write.")] = "all",
    tokens: Annotated[
        bool,
        typer.Option(
            "--tokens",
            help="Include token ids and both models' log-probabilities in rollouts.jsonl.",
        ),
    ] = False,
    db: DbOption = HISTORY,
) -> None:
    """Export a run as files: one Parquet file per table, rollouts.jsonl and metrics.jsonl (one line per
    step, common metric names).

    `-f verdicts` writes only verdicts.jsonl, the sealed records that `rtl-distill grade reproduce` checks.

    Examples:

        rtl-distill admin export demo --to /tmp/demo

        rtl-distill admin export demo -f metrics --to runs/demo
    """
    from rtl_core.history import export as exports

    history = open_history(db)
    name = pick_run(history, run)
    folder = to or Path(f"export-{name}")
    if format_ in ("parquet", "all"):
        for path in exports.export_parquet(history, name, folder):
            typer.echo(str(path))
    parts = {"all": ["rollouts", "metrics"], "parquet": []}
    for what in parts.get(format_, [format_]):
        file = folder / f"{what}.jsonl"
        lines = _lines(what, history, name, tokens)
        typer.echo(f"{file}: {exports.write_lines(file, lines)} lines")


def _lines(what: str, history: History, run: str, tokens: bool) -> Iterable[dict[str, Any]]:
    """The rollouts, metrics or verdicts of a run, each as JSON."""
    if what == "metrics":
        from rtl_core.history.export import metrics

        return metrics(history, run)
    if what == "rollouts":
        from rtl_core.episodes.exporting import rollout_lines

        return rollout_lines(history, run, tokens)
    from rtl_core.rollouts.verdict_records import records_of

    return records_of(history, run)
