"""Commands about verdicts: `grade` the answers of a file, and `reproduce` verdict records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from rtl_grader.cli.options import (
    ExecutorName,
    ExecutorOption,
    JobsOption,
    SourceOption,
    TimeoutOption,
)
from rtl_grader.errors import ConfigError

if TYPE_CHECKING:
    from rtl_grader.records.grade_file import GradedFile
    from rtl_grader.records.reproduce import CheckedRecord
    from rtl_grader.types.problem import Problem

Until = Literal["format", "interface", "syntax", "tests"]
RESULTS = {
    "equal": "proved",
    "same": "not told apart",
    "different": "doubtful",
    "unknown": "unknown",
}
"""Result of a comparison with the golden answer -> words."""


def grade(
    problems: Annotated[
        Path, typer.Argument(help="Problems in a CVDP format, one JSON object per line.")
    ],
    answers: Annotated[
        Path,
        typer.Option(
            help='Answers, one per line: {"id", "response"} or {"id", "files": {path: text}}, optional "sample".'
        ),
    ],
    output: Annotated[
        Path, typer.Option(help="File to write the verdicts to, one JSON object per line.")
    ],
    executor: ExecutorOption = "bubblewrap",
    until: Annotated[Until, typer.Option(help="Last stage to grade.")] = "tests",
    jobs: JobsOption = 0,
    seed: Annotated[int, typer.Option(help="Random seed of the harnesses.")] = 0,
    seeds: Annotated[
        int,
        typer.Option(
            min=1,
            help="Seeds for a majority vote on failing answers to problems without a golden answer.",
        ),
    ] = 3,
    timeout: TimeoutOption = 120.0,
    repeat: Annotated[
        int,
        typer.Option(help="Grade each answer this often and report verdicts that flip.", min=1),
    ] = 1,
    audit: Annotated[
        Path | None,
        typer.Option(
            help="Also compare passes with the golden answers, or with each other, and write findings here."
        ),
    ] = None,
) -> None:
    """Grade answers to CVDP problems and write their verdicts.

    Verdicts are written as they finish and sorted into the answers' order at the end. Ctrl-C stops the
    simulations at once; repeat the command to continue. An answer that already has a verdict for the same
    problem, text, tools and settings is not graded again, unless grading itself failed. `rtl-grader
    serve-grader` grades answers to problems of other sets.

    Exit code: 0 when every answer got a verdict, 1 when a line was broken or the tools failed, 2 for a
    usage error, 130 after Ctrl-C, 143 after SIGTERM.

    Examples:

        rtl-grader grade examples/grade/problems.jsonl --answers examples/grade/answers.jsonl --output verdicts.jsonl

        rtl-grader grade problems.jsonl --answers answers.jsonl --output verdicts.jsonl --until syntax --jobs 8

        rtl-grader grade problems.jsonl --answers answers.jsonl --output verdicts.jsonl --audit findings.jsonl
    """
    from rtl_grader.cli.console import stoppable
    from rtl_grader.grading.limits import Limits
    from rtl_grader.records.audit_file import audit_file
    from rtl_grader.records.grade_file import FileGrading, grade_file
    from rtl_grader.types.verdict import Stage

    others = {path.resolve() for path in (problems, answers, output)}
    if audit is not None and audit.resolve() in others:
        raise ConfigError(
            f"--audit {audit} would overwrite another file of this command", "name a new file"
        )
    limits = Limits(wall_s=timeout, cpu_s=timeout)
    grading = FileGrading(
        problems, answers, output, executor, Stage(until), jobs, seed, seeds, limits, repeat
    )
    with stoppable(Console(stderr=True)):
        result = grade_file(grading)
        tally = {} if audit is None else audit_file(grading, result.records, audit)
    console = Console()
    console.print(_outcomes(result))
    if audit is not None:
        counts = ", ".join(f"{count} {RESULTS[name]}" for name, count in tally.items())
        console.print(
            f"audited passes: {counts or 'none'}; findings written to {audit}", soft_wrap=True
        )
    raise typer.Exit(0 if result.complete else 1)


def _outcomes(result: GradedFile) -> Table:
    """Number and share of answers by outcome."""
    from rtl_grader.types.verdict import Outcome
    from rtl_grader.words import counted

    total = len(result.records)
    title = f"{counted(total, 'answer')} graded in {result.seconds:.1f} s"
    if result.graded != total:
        title = f"{total} answers, {result.graded} graded now"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("outcome")
    table.add_column("answers", justify="right")
    table.add_column("share", justify="right")
    tally = Counter(record["outcome"] for record in result.records)
    for outcome in Outcome:
        if count := tally[outcome]:
            table.add_row(outcome.value, str(count), f"{count / total:.1%}")
    return table


def reproduce(
    verdicts: Annotated[
        Path, typer.Argument(help="Records written by `grade` or `serve-grader`.")
    ],
    source: SourceOption = None,
    executor: Annotated[
        ExecutorName | None,
        typer.Option(help="Where harnesses run (default: where most of the records' did)."),
    ] = None,
    jobs: JobsOption = 0,
) -> None:
    """Grade the answers of verdict records again, and report which verdicts differ and why.

    Each record is first compared with its own hashes (`altered` names the fields), then with a second
    grading under its own conditions: tools, problem, harness, interface, conditions or outcome may differ.
    Exit code 0 when all are equal, else 1.

    Example:

        rtl-grader reproduce verdicts.jsonl --source cvdp=problems.jsonl
    """
    from rtl_grader.cli.problems import load

    raise typer.Exit(reproduced(verdicts, load(source).every, executor, jobs))


def reproduced(
    verdicts: Path,
    problems: Sequence[Problem],
    executor: str | None,
    jobs: int,
    also: Callable[[list[CheckedRecord], Sequence[Problem]], object] = lambda *_: None,
) -> int:
    """Reproduce a file of records, print the differences, and return the exit code. `also` adds further ones."""
    from rtl_grader.cli.console import stoppable
    from rtl_grader.records.reproduce import reproduce
    from rtl_grader.words import visible

    with stoppable(Console(stderr=True), resumes=False):
        claims = reproduce(verdicts, problems, executor, jobs)
        also(claims, problems)
    kinds: Counter[str] = Counter()
    equal = 0
    for claim in claims:
        equal += not claim.differences
        kinds.update({kind for kind, _ in claim.differences})
        for kind, detail in claim.differences:
            typer.echo(visible(f"{claim.name}: {kind}: {detail}"))
    counts = [f"; {kind}: {count}" for kind, count in kinds.most_common()]
    typer.echo(f"{equal} of {len(claims)} verdicts are equal{''.join(counts)}")
    return 0 if equal == len(claims) else 1
