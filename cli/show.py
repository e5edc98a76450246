"""`rtl-distill show`: one rollout, whole."""

from __future__ import annotations

from typing import Annotated

import typer

from rtl_distill.cli.database import DbOption, open_history


def show(
    rollout: Annotated[str, typer.Argument(help="Key of a rollout, or its end where that is enough to tell it.")],
    tokenizer: Annotated[
        str | None,
        typer.Option(
            "--tokenizer", help="Folder or name of the tokenizer (default: the student's, as the run has it)."
        ),
    ] = None,
    db: DbOption = None,
) -> None:
    """Print a rollout: problem, answer, verdict with reasons, reward by term, KL by token.

    Examples:

        rtl-distill show demo/step/00030/starter_adder_d07e3f57d5/2

        rtl-distill query "SELECT rollout FROM verdicts WHERE outcome = 'timeout' LIMIT 1" -o csv
    """
    from rich.console import Console

    from rtl_core.reporting.rollout import rollout_view
    from rtl_core.view.pieces import pieces

    history = open_history(db)
    stored = history.find_rollout(rollout)
    problem = history.problem_record(stored.rollout.run, stored.rollout.problem_id)
    record = history.run(stored.rollout.run)
    texts = pieces(record, stored.rollout.tokens_T, tokenizer) if stored.teacher else None
    console = Console()
    console.print(rollout_view(stored, problem, texts))
    if stored.teacher and texts is None:
        console.print("no tokenizer is at hand, so tokens are shown by number; name one with --tokenizer", style="dim")
