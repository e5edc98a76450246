"""`rtl-distill evaluate`: evaluate a run that was trained before."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer


def evaluate(
    run: Annotated[str, typer.Argument(help="Name of the run.")],
    split: Annotated[
        Literal["heldout", "test"], typer.Option(help="heldout, or test: the specifications kept apart while tuning.")
    ] = "heldout",
    samples: Annotated[int, typer.Option(min=1, help="Answers per problem.")] = 8,
    policy: Annotated[Literal["student", "teacher"], typer.Option(help="student or teacher.")] = "student",
    step: Annotated[
        int | None, typer.Option(min=0, help="Train steps of the student's weights; the newest by default.")
    ] = None,
    db: Annotated[Path, typer.Option(envvar="RTL_DISTILL_DB", help="The history file.")] = Path("runs/history.duckdb"),
) -> None:
    """Evaluate a trained run: more samples, another split, an earlier step, or the teacher.

    Examples:

        rtl-distill evaluate demo --split heldout --samples 8

        rtl-distill evaluate demo --split test --step 0
    """
    import asyncio
    import os

    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "ERROR")
    from flows.evaluate import evaluate as evaluate_flow
    from rtl_core.cli.console import ConsoleProgress
    from rtl_core.pipeline.progress import progress

    with ConsoleProgress() as console:
        progress.set(console)
        asyncio.run(evaluate_flow(run, str(db), policy, split, samples, step))
