"""`rtl-distill audit`: were a run's passes deserved?"""

from __future__ import annotations

from typing import Annotated

import typer

from rtl_distill.cli.arguments import DbOption, NewestRunArgument, PurposeOption, database_path, open_history, pick_run


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
