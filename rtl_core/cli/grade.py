"""`rtl-distill grade`: verdicts for answers in a file."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Until(StrEnum):
    """The last stage to grade."""

    FORMAT = "format"
    INTERFACE = "interface"
    SYNTAX = "syntax"
    TESTS = "tests"


def grade(
    problems: Annotated[Path, typer.Argument(help="Problems in a CVDP format, one JSON object a line.")],
    answers: Annotated[
        Path,
        typer.Option(
            help='Answers, one a line: {"id", "response"} or {"id", "files": {path: text}}, optional "sample".'
        ),
    ],
    output: Annotated[Path, typer.Option(help="Where to write the verdicts, one JSON object a line.")],
    executor: Annotated[str, typer.Option(help="Where the harness runs: bubblewrap or docker.")] = "bubblewrap",
    until: Annotated[Until, typer.Option(help="The last stage to grade.")] = Until.TESTS,
    jobs: Annotated[int, typer.Option(help="Answers graded at one time; 0 means one per core.", min=0)] = 0,
    seed: Annotated[int, typer.Option(help="Random seed of the harnesses.")] = 0,
    timeout: Annotated[float, typer.Option(help="Wall time of one service, in seconds.", min=1, max=3600)] = 120.0,
    repeat: Annotated[int, typer.Option(help="Grade each answer so often and report verdicts that flip.", min=1)] = 1,
) -> None:
    """Grade answers to CVDP problems and write their verdicts.

    Exit code 0 when every answer got a verdict, 1 when a line was broken or the tools failed, 2 for a usage error.

    Examples:

        rtl-distill grade problems.jsonl --answers answers.jsonl --output verdicts.jsonl

        rtl-distill grade problems.jsonl --answers answers.jsonl --output verdicts.jsonl --until syntax --jobs 8
    """
    from rtl_core.grading.batch import grade_file
    from rtl_core.grading.limits import Limits
    from rtl_core.grading.verdict import Stage

    complete = grade_file(
        problems,
        answers,
        output,
        executor=executor,
        until=Stage(until.value),
        jobs=jobs,
        seed=seed,
        limits=Limits(wall_s=timeout, cpu_s=timeout),
        repeat=repeat,
    )
    raise typer.Exit(0 if complete else 1)
