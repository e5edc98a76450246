"""Commands about verdicts: `grade` the answers of a file, and `reproduce` verdict records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from rtl_grader.cli.options import JobsOption, SourceOption, TimeoutOption
from rtl_grader.errors import ConfigError

if TYPE_CHECKING:
    from rtl_grader.records.grade_file import GradedFile
    from rtl_grader.types.problem import Problem

Until = Literal["format", "interface", "syntax", "tests"]
RESULTS = {
    "equal": "proved",
    "same": "not told apart",
    "different": "doubtful",
    "unknown": "unknown",
}


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
    executor: Annotated[
        str, typer.Option(help="Where the harness runs: bubblewrap or docker.")
    ] = "bubblewrap",
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
        int, typer.Option(help="Grade each answer this often and report verdicts that flip.", min=1)
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
    problem, text, tools and settings is not graded again, unless grading itself failed.

    Exit code: 0 when every answer got a verdict, 1 when a line was broken or the tools failed, 2 for a
    usage error, 130 after Ctrl-C, 143 after SIGTERM.

    Examples:

        rtl-distill grade problems.jsonl --answers answers.jsonl --output verdicts.jsonl

        rtl-distill grade problems.jsonl --answers answers.jsonl --output verdicts.jsonl --until syntax --jobs 8

        rtl-distill grade problems.jsonl --answers answers.jsonl --output verdicts.jsonl --audit findings.jsonl
    """
    from rtl_grader.cli.console import stoppable
    from rtl_grader.grading.limits import Limits
    from rtl_grader.records.audit_file import audit_file
    from rtl_grader.records.grade_file import FileGrading, grade_file
    from rtl_grader.types.verdict import Stage

    if audit is not None and audit.resolve() in {
        path.resolve() for path in (problems, answers, output)
    }:
        raise ConfigError(
            f"--audit {audit} would overwrite another file of this command", "name a new file"
        )
    limits = Limits(wall_s=timeout, cpu_s=timeout)
    asked = FileGrading(
        problems, answers, output, executor, Stage(until), jobs, seed, seeds, limits, repeat
    )
    with stoppable(Console(stderr=True)):
        done = grade_file(asked)
        looked = {} if audit is None else audit_file(asked, done.records, audit)
    Console().print(_outcomes(done))
    if audit is not None:
        counts = ", ".join(f"{count} {RESULTS[name]}" for name, count in looked.items()) or "none"
        Console().print(f"audited passes: {counts}; findings written to {audit}", soft_wrap=True)
    raise typer.Exit(0 if done.complete else 1)


def _outcomes(done: GradedFile) -> Table:
    """Number and share of answers by outcome."""
    from rtl_grader.types.verdict import Outcome
    from rtl_grader.words import counted

    total = len(done.records)
    title = f"{counted(total, 'answer')} graded in {done.seconds:.1f} s"
    if done.graded != total:
        title = f"{total} answers, {done.graded} graded now"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("outcome")
    table.add_column("answers", justify="right")
    table.add_column("share", justify="right")
    tally = Counter(record["outcome"] for record in done.records)
    for outcome in Outcome:
        if count := tally[outcome]:
            table.add_row(outcome.value, str(count), f"{count / total:.1%}")
    return table


def reproduce(
    verdicts: Annotated[Path, typer.Argument(help="Records written by `grade` or `serve-grader`.")],
    source: SourceOption = None,
    executor: Annotated[
        str | None,
        typer.Option(help="bubblewrap or docker (default: the one that most records name)."),
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


def reproduced(verdicts: Path, problems: Sequence[Problem], executor: str | None, jobs: int) -> int:
    """Reproduce a file of records, print the differences, and return the exit code."""
    from rtl_grader.cli.console import stoppable
    from rtl_grader.records.reproduce import reproduce
    from rtl_grader.words import visible

    with stoppable(Console(stderr=True)):
        claims = reproduce(verdicts, problems, executor, jobs)
    for claim in claims:
        for kind, detail in claim.found:
            typer.echo(visible(f"{claim.name}: {kind}: {detail}"))
    kinds = Counter(kind for claim in claims for kind in {kind for kind, _ in claim.found})
    equal = sum(not claim.found for claim in claims)
    differing = "".join(f"; {kind}: {count}" for kind, count in kinds.most_common())
    typer.echo(f"{equal} of {len(claims)} verdicts are equal{differing}")
    return 0 if equal == len(claims) else 1
