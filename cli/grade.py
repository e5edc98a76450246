"""The group `grade`: grade a run `again`, `reproduce` verdict records, and `audit` passes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from rtl_distill.cli.arguments import (
    HISTORY,
    ConfigOption,
    DbOption,
    ExecutorName,
    NewestRunArgument,
    PurposeOption,
    SourceOption,
    announce,
    open_history,
    pick_run,
)
from rtl_grader.cli.options import JobsOption

if TYPE_CHECKING:
    from rtl_grader.types.problem import Problem

UNLIMITED = 2**31 - 1


def reproduce(
    verdicts: Annotated[
        Path,
        typer.Argument(
            help="Records written by `grade answers`, `serve grader` or `admin export -f verdicts`, or a card (.json)."
        ),
    ],
    of_card: Annotated[
        Path | None,
        typer.Argument(
            metavar="VERDICTS", help="A card's records (default: the file beside it)."
        ),
    ] = None,
    config: ConfigOption = "demo",
    source: SourceOption = None,
    run: Annotated[
        str | None, typer.Option("--run", help="Use this run's problems from the history.")
    ] = None,
    executor: Annotated[
        str | None,
        typer.Option(help="bubblewrap or docker (default: the one that most records name)."),
    ] = None,
    jobs: JobsOption = 0,
    db: DbOption = HISTORY,
) -> None:
    """Grade the answers of verdict records again, and report which verdicts differ and why.

    Each record is first compared with its own hashes (`altered` names the fields), then with a second
    grading under its own conditions: tools, problem, harness, interface, conditions or outcome may differ.
    The recorded turns of an episode are played again, and its calls must give the same results.

    Of a card of `evaluate --card`, it is first recomputed what follows from the records: figures, digests,
    hashes; with --source or --run, the answers are then graded again. Exit code 0 when all are equal, else 1.

    Examples:

        rtl-distill grade reproduce verdicts.jsonl --source cvdp=problems.jsonl

        rtl-distill grade reproduce card.json --source cvdp=data/cvdp

        rtl-distill admin export demo -f verdicts && rtl-distill grade reproduce export-demo/verdicts.jsonl --run demo
    """
    from rtl_core.cards.checking import check_card
    from rtl_core.cards.rendering import FORMS
    from rtl_core.cards.replaying import replay_episodes
    from rtl_core.rollouts.resumable import problems_as_recorded
    from rtl_distill.cli.problems import load
    from rtl_grader.cli.grade import reproduced

    problems, faulty = None, False
    is_card = verdicts.suffix in FORMS or of_card is not None
    if run:
        problems = [*problems_as_recorded(open_history(db), run).values()]
    elif source and is_card:
        problems = _read_as_by(verdicts, source)
    elif not is_card:
        problems = load(config, source).every
    if is_card:
        card = verdicts
        verdicts, faults = check_card(card, of_card, problems)
        faulty = _told(card, verdicts, faults)
        if problems is None:
            typer.echo("the answers were not graded again: give --source or --run for that")
            raise typer.Exit(int(faulty))
    assert problems is not None, "they are needed to grade"
    code = reproduced(
        verdicts, problems, executor, jobs, also=partial(replay_episodes, executor=executor)
    )
    raise typer.Exit(code or int(faulty))


def _read_as_by(card: Path, source: list[str]) -> list[Problem]:
    """The problems of --source, read as the card's protocol reads its own."""
    from rtl_core.cards.card import read_card
    from rtl_core.config.load import shipped_configs
    from rtl_core.config.protocol import sources_under
    from rtl_grader.problems.sources import load_problems, source_of

    file = shipped_configs("protocols").get(read_card(card)[0].protocol.name)
    sources = sources_under(source, str(file)) if file else [*map(source_of, source)]
    return load_problems(sources, 0, hold_out_all=True).every


def _told(card: Path, verdicts: Path, faults: list[str]) -> bool:
    """Print the faults of a card; return whether there are any."""
    from rtl_grader.words import visible

    for fault in faults:
        typer.echo(visible(fault))
    words = f"do not follow from {verdicts}" if faults else f"follow from {verdicts}"
    typer.echo(f"the figures of {card} {words}")
    return bool(faults)


def regrade(
    run: NewestRunArgument = None,
    executor: Annotated[
        ExecutorName | None,
        typer.Option(help="Where the harness runs (default: as in the run)."),
    ] = None,
    image: Annotated[
        str | None, typer.Option(help="Simulation image for the Docker executor.")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Random seed of the harnesses (default: as in the run)."),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(help="Label of the regrading (default: executor, tools, seed)."),
    ] = None,
    purpose: PurposeOption = "all",
    first_step: Annotated[int, typer.Option("--from", min=0, help="First step.")] = 0,
    last_step: Annotated[int, typer.Option("--to", min=0, help="Last step.")] = UNLIMITED,
    most: Annotated[
        int, typer.Option("--most", min=1, help="Maximum number of rollouts.")
    ] = UNLIMITED,
    db: DbOption = HISTORY,
) -> None:
    """Grade a run's answers again and report which verdicts changed; the original verdicts stay as they are.

    New verdicts are stored under a label; after an interruption, repeat the command to continue.
    `rtl-distill query regrades` lists the labels, and `rtl-distill query changed-verdicts` every rollout
    whose verdict changed.

    Examples:

        rtl-distill grade again demo --seed 7                       # do verdicts depend on the harness' seed?

        rtl-distill grade again demo --executor docker --image cvdp-sim:next --purpose evaluation
    """
    announce("reading the history")
    from rtl_distill.cli.flow import run_flow

    name = pick_run(open_history(db), run)
    choice = {
        "purpose": purpose,
        "first_step": first_step,
        "last_step": last_step,
        "most": most,
    }
    order = (name, str(db), label, executor, image, seed, choice)
    run_flow("rtl_distill.flows.regrade:regrade", *order, title=f"regrade {name}")


CyclesOption = Annotated[
    int, typer.Option(min=100, help="Clock cycles, or random input patterns, per simulation.")
]
ProofOption = Annotated[
    float, typer.Option(min=0.0, help="CPU seconds per proof; 0 means no proofs.")
]


def audit(
    run: NewestRunArgument = None,
    purpose: PurposeOption = "all",
    cycles: CyclesOption = 24_000,
    parameters: Annotated[
        int, typer.Option(min=0, help="Number of other parameter sets to try.")
    ] = 6,
    proof: ProofOption = 10.0,
    most: Annotated[int, typer.Option(min=1, help="Maximum number of passes.")] = UNLIMITED,
    jobs: JobsOption = 0,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 when a pass is doubtful.")
    ] = False,
    json_: Annotated[
        bool, typer.Option("--json", help="Print one JSON object and nothing else.")
    ] = False,
    db: DbOption = HISTORY,
) -> None:
    """Compare every passed answer of a run with its problem's golden answer, and list the doubtful ones.

    An answer that behaves the same in simulation is also proved equal if possible. Without a golden answer,
    the passes of a problem are compared with each other.

    Findings are stored in the history and shown in reports; after an interruption, repeat the command to
    continue. Exit code: 0 when every pass was examined (1 with --strict and a doubtful pass), 130 after
    Ctrl-C.

    Examples:

        rtl-distill grade audit demo

        rtl-distill grade audit demo --cycles 200000 --purpose evaluation --json
    """
    announce("reading the history")
    import json

    from rtl_core.reporting.figures.audit import audit_summary, render, summary_of
    from rtl_core.rollouts.auditing import audit_run
    from rtl_core.rollouts.resumable import Choice, refuse_failed
    from rtl_core.run.folder import config_of
    from rtl_grader.cli.console import stoppable
    from rtl_grader.equivalence.effort import Effort

    history = open_history(db, forward=True)
    name = pick_run(history, run)
    console = Console(stderr=True) if json_ else Console()
    with stoppable(console) as tell:
        tell.stage(f"audit {name}")
        choice = Choice(purpose=purpose, most=most)
        effort = Effort.of_cycles(cycles, parameters, proof)
        outcome = audit_run(history.path, config_of(history, name), choice, effort, jobs=jobs)
        tell.line(outcome.in_words())
    summary = audit_summary(history, name) or summary_of([])
    if json_:
        document = {"run": name, "without_golden": outcome.without_golden, **summary.as_json()}
        print(json.dumps(document, indent=2))
    else:
        console.print(render(history, name, summary))
    refuse_failed("the executor", "passes", outcome.failed)
    if strict and summary.doubtful:
        raise typer.Exit(1)
