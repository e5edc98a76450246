"""`rtl-distill grade`: verdicts for answers in a file; `reproduce`: the same verdicts again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Literal

import typer

from rtl_distill.cli.arguments import ConfigOption, DbOption, SourceOption

Until = Literal["format", "interface", "syntax", "tests"]
TimeoutOption = Annotated[
    float,
    typer.Option(
        help="Limit of one service, in seconds in which it computes or sleeps; less where a right answer needed far less.",
        min=1,
        max=3600,
    ),
]
JobsOption = Annotated[int, typer.Option(help="Answers graded at one time; 0 means one per core.", min=0)]
AuditOption = Annotated[
    Path | None,
    typer.Option(help="Also hold passes against the golden answers, or against one another, and write findings there."),
]
RESULTS = {"equal": "proved", "same": "not told apart", "different": "doubtful", "unknown": "unknown"}


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
    until: Annotated[Until, typer.Option(help="The last stage to grade.")] = "tests",
    jobs: JobsOption = 0,
    seed: Annotated[int, typer.Option(help="Random seed of the harnesses.")] = 0,
    seeds: Annotated[
        int,
        typer.Option(
            min=1, help="Seeds of which a majority decides on answers that fail, where no golden answer is known."
        ),
    ] = 3,
    timeout: TimeoutOption = 120.0,
    repeat: Annotated[int, typer.Option(help="Grade each answer so often and report verdicts that flip.", min=1)] = 1,
    audit: AuditOption = None,
) -> None:
    """Grade answers to CVDP problems and write their verdicts.

    Verdicts are written as they finish, and put into the answers' order at the end. Ctrl-C ends the simulations at once; the same
    command goes on where it stopped: an answer that already has a verdict, with the same problem, text, tools and settings, is not
    graded again, unless grading itself failed.

    Exit code 0 when every answer got a verdict, 1 when a line was broken or the tools failed, 2 for a usage error, 130 after Ctrl-C
    (143 after SIGTERM).

    Examples:

        rtl-distill grade problems.jsonl --answers answers.jsonl --output verdicts.jsonl

        rtl-distill grade problems.jsonl --answers answers.jsonl --output verdicts.jsonl --until syntax --jobs 8

        rtl-distill grade problems.jsonl --answers answers.jsonl --output verdicts.jsonl --audit findings.jsonl
    """
    from rich.console import Console

    from rtl_core.grading.limits import Limits
    from rtl_core.rollouts.audit_file import audit_file
    from rtl_core.rollouts.grade_file import FileGrading, grade_file
    from rtl_core.types.verdict import Stage
    from rtl_distill.cli.flow import stoppable

    limits = Limits(wall_s=timeout, cpu_s=timeout)
    asked = FileGrading(problems, answers, output, executor, Stage(until), jobs, seed, seeds, limits, repeat)
    with stoppable(Console(stderr=True)):
        done = grade_file(asked)
        looked = {} if audit is None else audit_file(asked, done.records, audit)
    Console().print(done.table())
    if audit is not None:
        counts = ", ".join(f"{count} {RESULTS[name]}" for name, count in looked.items()) or "none"
        Console().print(f"passes looked at: {counts}; findings written to {audit}", soft_wrap=True)
    raise typer.Exit(0 if done.complete else 1)


def reproduce(
    verdicts: Annotated[
        Path, typer.Argument(help="Records as `grade`, `serve-grader` or `export -f verdicts` write them.")
    ],
    config: ConfigOption = "demo",
    source: SourceOption = None,
    run: Annotated[str | None, typer.Option("--run", help="The problems of this run as the history has them.")] = None,
    executor: Annotated[
        str | None, typer.Option(help="bubblewrap or docker (default: the one that most records name).")
    ] = None,
    jobs: JobsOption = 0,
    db: DbOption = None,
) -> None:
    """Grade the answers of verdict records again and tell which verdicts differ, and why.

    Each record is held against its own hashes first (`altered` names the fields), then against a second grading under its own
    conditions: other tools, problem, harness, interface, conditions or outcome. Exit code 0 when all are equal, 1 when some differ.

    Examples:

        rtl-distill reproduce verdicts.jsonl --source cvdp=problems.jsonl

        rtl-distill export demo -f verdicts --to demo && rtl-distill reproduce demo/verdicts.jsonl --run demo
    """
    from rich.console import Console

    from rtl_core.reporting.text import visible
    from rtl_core.rollouts.reproducing import reproduce as reproduce_file
    from rtl_core.types.problem import Problem
    from rtl_distill.cli.arguments import open_history
    from rtl_distill.cli.flow import stoppable
    from rtl_distill.cli.problems import load

    if run is None:
        loaded = load(config, source)
        problems = [*loaded.train, *loaded.heldout]
    else:
        problems = [Problem.model_validate(one.record) for one in open_history(db).problems_of(run)]
    with stoppable(Console(stderr=True)):
        claims = reproduce_file(verdicts, problems, executor, jobs)
    for claim in claims:
        for kind, detail in claim.found:
            typer.echo(visible(f"{claim.name}: {kind}: {detail}"))
    kinds = Counter(kind for claim in claims for kind in {kind for kind, _ in claim.found})
    equal = sum(not claim.found for claim in claims)
    told = "".join(f"; {kind}: {count}" for kind, count in kinds.most_common())
    typer.echo(f"{equal} of {len(claims)} verdicts are equal{told}")
    raise typer.Exit(0 if equal == len(claims) else 1)
