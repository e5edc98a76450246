"""`rtl-distill compare`: runs side by side on a terminal."""

from __future__ import annotations

from typing import Annotated

import typer

from rtl_distill.cli.database import DbOption, open_history, pick_run


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN RUN...", help="Two or more runs; the first is what the others are held against."),
    ],
    db: DbOption = None,
) -> None:
    """Compare runs: held-out results with a paired test, curves in brief, problems that tell them apart, other settings.

    Examples:

        rtl-distill compare with-teacher without-teacher
    """
    from rich.console import Console

    from rtl_core.errors import HistoryError
    from rtl_core.reporting.comparison import comparison

    if len(runs) < 2:
        raise HistoryError("it takes two runs to compare", "rtl-distill compare RUN RUN")
    history = open_history(db)
    console = Console()
    for part in comparison(history, [pick_run(history, run) for run in runs]):
        console.print(part)
