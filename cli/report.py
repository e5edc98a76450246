"""`rtl-distill report`: the page of a run, or of several side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rtl_distill.cli.database import DbOption, open_history, pick_run


def report(
    runs: Annotated[
        list[str] | None, typer.Argument(metavar="RUN...", help="Runs; several are compared (default: the newest).")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The page (default: report-RUN.html).")] = None,
    png: Annotated[
        Path | None, typer.Option("--png", metavar="DIR", help="Also write every figure as a PNG file there.")
    ] = None,
    dark: Annotated[bool, typer.Option("--dark", help="PNG files for a dark background.")] = False,
    section: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE:FUNCTION", help="Add a section of your own (docs/architecture.md); may be repeated."
        ),
    ] = None,
    db: DbOption = None,
) -> None:
    """Write the report of a run as one HTML file that needs no network. It may be asked for while the run goes on.

    Examples:

        rtl-distill report demo

        rtl-distill report with-teacher without-teacher -o comparison.html

        rtl-distill report demo --png figures/
    """
    from rtl_core.reporting.report import write_report

    history = open_history(db)
    names = [pick_run(history, name) for name in runs] if runs else [pick_run(history, None)]
    path = write_report(history, names, output or Path(f"report-{'-'.join(names)}.html"), section or [])
    typer.echo(str(path))
    if png is not None:
        from rtl_core.reporting.png import write_pngs

        for written in write_pngs(history, names, png, "dark" if dark else "light", section or []):
            typer.echo(str(written))
