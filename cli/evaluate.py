"""`rtl-distill evaluate`: evaluate a run that was trained before."""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any, Literal

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
    template: Annotated[
        str | None,
        typer.Option(
            help="Another prompt template than the run's, to compare the two; `rtl-distill config --show` explains all."
        ),
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(min=0.01, help="Another sampling temperature than the run's.")
    ] = None,
    db: Annotated[Path, typer.Option(envvar="RTL_DISTILL_DB", help="The history file.")] = Path("runs/history.duckdb"),
) -> None:
    """Evaluate a trained run: more samples, another split, an earlier step, another template or temperature, or the teacher.

    Shows pass@k with 95 % intervals by difficulty, category and family, and the paired difference to the run's other evaluations
    of the same problems.

    Examples:

        rtl-distill evaluate demo --split heldout --samples 8

        rtl-distill evaluate demo --split test --step 0

        rtl-distill evaluate my-run --template full

        rtl-distill evaluate demo --split test --temperature 0.5
    """
    from cli.flow import run_flow
    from rtl_core.prompting.templates import TEMPLATES

    if template is not None:
        TEMPLATES.find(template)  # a mistake is told at once and without a server

    def flow() -> Coroutine[Any, Any, str]:
        from flows.evaluate import evaluate as evaluate_flow

        return evaluate_flow(run, str(db), policy, split, samples, step, template, temperature)

    run_flow(flow)
