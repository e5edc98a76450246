"""The command `problems repair`: bugs in designs, with reports, as problems."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from rtl_grader.cli.options import ExecutorOption, JobsOption, SourceOption
from rtl_grader.words import command


def repair(
    output: Annotated[
        Path,
        typer.Option(help="JSONL file for the source `pairs`; one that exists is continued."),
    ],
    source: SourceOption = None,
    per_module: Annotated[int, typer.Option(help="Bugs in each module, at most.", min=1)] = 2,
    seed: Annotated[int, typer.Option(help="Seed of the choice of bugs.")] = 0,
    executor: ExecutorOption = "bubblewrap",
    jobs: JobsOption = 0,
) -> None:
    """Write repair tasks: a design with a bug, and the inputs that show it with the expected and actual outputs.

    Bugs are mutants that the judge tells apart from the design.

    Example:

        rtl-grader problems repair --source rtl=../verilog-axis --output repairs.jsonl
    """
    from rtl_grader.cli.console import stoppable
    from rtl_grader.cli.problems import load
    from rtl_grader.grading.executors import make_executor
    from rtl_grader.grading.grader import Grader
    from rtl_grader.grading.pool import GraderPool
    from rtl_grader.validation.repairs import repair_all

    problems, console = load(source).every, Console()
    output.open("a").close()  # a wrong path must not cost the results
    with (
        stoppable(console),
        closing(GraderPool(Grader(make_executor(executor)), jobs)) as pool,
    ):
        written, left_out = repair_all(problems, pool, per_module, seed, output)
    typer.echo(f"{written} repair tasks written to {output}")
    for reason, count in Counter(left_out.values()).most_common():
        typer.echo(f"{count} designs without any: {reason}")
    typer.echo(f"next: {command('problems list')} --source pairs={output}")
