"""Verdicts: of answers in a file (`grade`), the same ones again (`reproduce`), those of a run again (`regrade`), and whether they were
deserved (`audit`)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Literal

import typer

from rtl_distill.cli.arguments import (
    ConfigOption,
    DbOption,
    NewestRunArgument,
    PurposeOption,
    SourceOption,
    database_path,
    open_history,
    pick_run,
)

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
    from rtl_core.rollouts.auditing import audit_file
    from rtl_core.rollouts.verdict_records import FileGrading, grade_file
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
    from rtl_core.rollouts.resumable import problems_as_recorded
    from rtl_core.rollouts.verdict_records import reproduce as reproduce_file
    from rtl_distill.cli.flow import stoppable
    from rtl_distill.cli.problems import load

    problems = [*problems_as_recorded(open_history(db), run).values()] if run else load(config, source).every
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


def regrade(
    run: NewestRunArgument = None,
    executor: Annotated[
        Literal["bubblewrap", "docker"] | None, typer.Option(help="Where the harness runs (default: as in the run).")
    ] = None,
    image: Annotated[str | None, typer.Option(help="Simulation image of the Docker executor.")] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Random seed of the harnesses (default: as in the run).")
    ] = None,
    label: Annotated[str | None, typer.Option(help="Name of the regrading (default: executor, tools, seed).")] = None,
    purpose: PurposeOption = "all",
    first_step: Annotated[int, typer.Option("--from", min=0, help="First step.")] = 0,
    last_step: Annotated[int, typer.Option("--to", min=0, help="Last step.")] = 2**31 - 1,
    most: Annotated[int, typer.Option("--most", min=1, help="How many rollouts at most.")] = 2**31 - 1,
    db: DbOption = None,
) -> None:
    """Grade what a run sampled again and tell which verdicts changed; what training saw stays as it is.

    Verdicts are kept under a label; the same command goes on where it stopped. `rtl-distill query regrades` lists the labels and
    `rtl-distill query changed-verdicts` every rollout that changed.

    Examples:

        rtl-distill regrade demo --seed 7                       # do verdicts depend on the harness' seed?

        rtl-distill regrade demo --executor docker --image cvdp-sim:next --purpose evaluation
    """
    from rtl_distill.cli.flow import run_flow

    name = pick_run(open_history(db), run)
    choice = {"purpose": purpose, "first_step": first_step, "last_step": last_step, "most": most}
    asked = (name, str(database_path(db)), label, executor, image, seed, choice)
    run_flow("rtl_distill.flows.regrade:regrade", *asked, title=f"regrade {name}")


def audit(
    run: NewestRunArgument = None,
    purpose: PurposeOption = "all",
    cycles: Annotated[
        int, typer.Option(min=100, help="Clock cycles, or random input patterns, of each simulation.")
    ] = 24_000,
    parameters: Annotated[int, typer.Option(min=0, help="How many other sets of parameter values are tried.")] = 6,
    proof: Annotated[float, typer.Option(min=0.0, help="CPU seconds of each proof; 0 means none.")] = 10.0,
    most: Annotated[int, typer.Option(min=1, help="How many passes at most.")] = 2**31 - 1,
    jobs: Annotated[int, typer.Option(min=0, help="Simulations at one time; 0 means one per core.")] = 0,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 when a pass is doubtful.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    db: DbOption = None,
) -> None:
    """Hold every passed answer of a run against its problem's golden answer, and name the doubtful ones.

    An answer that simulation does not tell apart is proved equal where that can be done. Without a golden answer, the passes of
    a problem are held against one another.

    What is found is kept in the history, and reports show it; the same command goes on where it stopped. Exit code 0 when every
    pass was looked at (1 with --strict and a doubtful one), 130 when it was interrupted.

    Examples:

        rtl-distill audit demo

        rtl-distill audit demo --cycles 200000 --purpose evaluation --json
    """
    import json

    from rich.console import Console

    from rtl_core.equivalence.side_by_side import Effort
    from rtl_core.history.store import History
    from rtl_core.reporting.figures.audit import audit_summary, render, summary_of
    from rtl_core.rollouts.auditing import audit_run
    from rtl_core.rollouts.resumable import Choice, refuse_failed
    from rtl_core.run.folder import config_of
    from rtl_distill.cli.flow import stoppable

    path = database_path(db)
    history = History(path) if path.is_file() else open_history(db)  # a history of an older schema comes forward
    name = pick_run(history, run)
    console = Console(stderr=True) if json_ else Console()
    with stoppable(console) as tell:
        tell.stage(f"audit {name}")
        choice, effort = Choice(purpose=purpose, most=most), Effort.of_cycles(cycles, parameters, proof)
        done = audit_run(path, config_of(history, name), choice, effort, jobs=jobs)
        tell.line(done.in_words())
    summary = audit_summary(history, name) or summary_of([])
    if json_:
        print(json.dumps({"run": name, "without_golden": done.without_golden, **summary.as_json()}, indent=2))
    else:
        console.print(render(history, name, summary))
    refuse_failed("the executor", "passes", done.failed)
    if strict and summary.whole.different:
        raise typer.Exit(1)
