"""The command `validate`: can the harness of each problem tell right from wrong?"""

from __future__ import annotations

from contextlib import closing, nullcontext
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from rtl_grader.cli.options import ExecutorOption, JobsOption, SourceOption


def validate(
    source: SourceOption = None,
    executor: ExecutorOption = "bubblewrap",
    mutants: Annotated[int, typer.Option(help="Mutants of each golden answer.", min=0)] = 20,
    seeds: Annotated[
        int, typer.Option(help="Different seeds for each golden answer.", min=1)
    ] = 3,
    jobs: JobsOption = 0,
    output: Annotated[
        Path | None,
        typer.Option(
            help="File for one JSON object per problem: status, reason and evidence, written as they finish."
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 when a problem is not fit.")
    ] = False,
) -> None:
    """Validate problems: golden answers must pass, wrong ones must fail, and verdicts must not flip.

    Prints a table by source, and each problem that is not fit with its reason. A problem takes between a
    few seconds and some minutes; fewer mutants and seeds take less.

    Examples:

        rtl-grader validate --source rtllm=../RTLLM

        rtl-grader validate --source cvdp=data/cvdp --output validation.jsonl --strict
    """
    from rtl_grader.cli.console import stoppable
    from rtl_grader.cli.problems import load
    from rtl_grader.grading.executors import make_executor
    from rtl_grader.grading.grader import Grader
    from rtl_grader.grading.pool import GraderPool
    from rtl_grader.validation import table
    from rtl_grader.validation.level import full_level
    from rtl_grader.validation.validate_all import validate_all

    loaded, console = load(source), Console()
    # The file is opened first: a wrong path must not cost the results.
    with (
        nullcontext() if output is None else output.open("w", encoding="utf-8") as file,
        stoppable(console, resumes=False),
        closing(GraderPool(Grader(make_executor(executor)), jobs)) as pool,
    ):
        records = validate_all(loaded.every, pool, full_level(mutants, seeds), file)
    rows, unfit = table.by_source(records, loaded.broken, loaded.left_out, loaded.every)
    console.print(table.render(rows, unfit))
    for line in table.published(loaded.every, records):
        console.print(line, markup=False, highlight=False)
    raise typer.Exit(1 if strict and unfit else 0)
