"""`rtl-distill watch`: a run, live."""

from __future__ import annotations

from typing import Annotated

import typer

from rtl_distill.cli.database import DbOption, open_history, pick_run


def watch(
    run: Annotated[str | None, typer.Argument(help="The run (default: the newest).")] = None,
    every: Annotated[float, typer.Option("--every", min=0.2, help="Seconds between looks.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Look once and end.")] = False,
    db: DbOption = None,
) -> None:
    """Watch a run from any terminal until it ends or is paused; the exit code is 0 when it finished and 1 when not.

    Examples:

        rtl-distill watch

        rtl-distill watch demo --once
    """
    import time

    from rich.console import Console
    from rich.live import Live

    from rtl_core.reporting.live import ended, live_view

    history = open_history(db)
    name = pick_run(history, run)
    record = history.run(name)
    assert record is not None
    if once:
        Console().print(live_view(history, record))
        return
    with Live(live_view(history, record), refresh_per_second=4) as live:
        while not ended(record):
            time.sleep(every)
            record = history.run(name) or record
            live.update(live_view(history, record))
    if record.status != "finished":
        raise typer.Exit(1)
