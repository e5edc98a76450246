"""`rtl-distill view`: look at runs in the browser, also while they write."""

from __future__ import annotations

from typing import Annotated

import typer

from rtl_distill.cli.database import DbOption, open_history


def view(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in your browser.")] = True,
    db: DbOption = None,
) -> None:
    """Serve a page on this machine: runs, steps, groups, rollouts with their tokens and waveforms, and what the model gets wrong.

    It may be looked at while runs write. Prints its address; Ctrl-C ends it.

    Examples:

        rtl-distill view

        rtl-distill view --db runs/history.duckdb --port 8765 --no-browser
    """
    import webbrowser

    from rtl_core.view.server import has_screen, serve

    history = open_history(db)
    history.runs()  # a file that cannot be read is named here, and not page by page

    def announce(address: str) -> None:
        typer.echo(address)
        if browser and has_screen():
            webbrowser.open(address)

    serve(history, port, announce)
