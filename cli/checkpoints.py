"""`rtl-distill checkpoints`: what weights a run has, and a trained adapter as files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.database import DbOption, open_history


def checkpoints(
    run: Annotated[str, typer.Argument(help="Name of the run.")],
    export: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Download the adapter into this folder, with a model card.")
    ] = None,
    step: Annotated[
        str,
        typer.Option(metavar="N|last|best", help="Which: after N train steps, the last, or the best held-out pass@1."),
    ] = "last",
    db: DbOption = None,
) -> None:
    """List the weights that a run keeps on the service; with --export fetch an adapter as files (peft's format).

    Examples:

        rtl-distill checkpoints demo

        rtl-distill checkpoints demo --export adapters/demo --step best
    """
    import asyncio

    from rich.console import Console

    from rtl_core.run.export import checkpoint_table, export_adapter
    from rtl_core.run.folder import config_of

    history = open_history(db)
    config = config_of(history, run)
    if export is None:
        Console().print(checkpoint_table(history, config))
        return
    for path in asyncio.run(export_adapter(history, config, step, export, typer.echo)):
        typer.echo(str(path))
