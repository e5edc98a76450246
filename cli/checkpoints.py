"""`rtl-distill checkpoints`: what weights a run has, and a trained adapter as files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rtl_distill.cli.database import DbOption, open_history

DTYPES = ("float32", "bfloat16", "float16")


def checkpoints(
    run: Annotated[str, typer.Argument(help="Name of the run.")],
    export: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the adapter into this folder, with a model card.")
    ] = None,
    merged: Annotated[
        bool,
        typer.Option(
            "--merged", help="With --export: write base and adapter as one model that transformers loads alone."
        ),
    ] = False,
    base: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="With --merged: the base model; left out: of tinker.local_models, a fetched one, or one of the package.",
        ),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(metavar="|".join(DTYPES), help="With --merged: of the weights; left out, the base's own."),
    ] = None,
    step: Annotated[
        str,
        typer.Option(metavar="N|last|best", help="Which: after N train steps, the last, or the best held-out pass@1."),
    ] = "last",
    db: DbOption = None,
) -> None:
    """List the weights that a run keeps on the service; with --export write them as files: the adapter (peft's format), or a whole model.

    With --merged the model's log-probabilities are compared with those that the service gave these weights, and nothing is written
    where they differ by more than arithmetic explains.

    Examples:

        rtl-distill checkpoints demo

        rtl-distill checkpoints demo --export adapters/demo --step best

        rtl-distill checkpoints demo --export models/demo --merged

        rtl-distill checkpoints RUN --export models/RUN --merged --base models/Qwen3.6-35B-A3B --dtype bfloat16
    """
    import asyncio

    from rich.console import Console

    from rtl_core.run.export import checkpoint_table, export_adapter, export_merged
    from rtl_core.run.folder import config_of

    if dtype not in (None, *DTYPES):
        raise typer.BadParameter(f"{dtype!r} is none of {', '.join(DTYPES)}", param_hint="--dtype")
    if merged and export is None:
        raise typer.BadParameter("says how --export writes: name its folder", param_hint="--merged")
    if (base or dtype) and not merged:
        raise typer.BadParameter("is for --merged", param_hint="--base" if base else "--dtype")

    history = open_history(db)
    config = config_of(history, run)
    if export is None:
        Console().print(checkpoint_table(history, config))
        return
    if merged:
        work = export_merged(history, config, step, export, typer.echo, base=base, dtype=dtype)  # type: ignore[arg-type]
    else:
        work = export_adapter(history, config, step, export, typer.echo)
    for path in asyncio.run(work):
        typer.echo(str(path))
