"""Commands about the account that pays for runs: `admin cost`, and `admin checkpoints RUN --all`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from rtl_distill.cli.arguments import (
    HISTORY,
    DbOption,
    NewestRunArgument,
    open_history,
    pick_run,
)

if TYPE_CHECKING:
    from rtl_core.config import RunConfig
    from rtl_core.history.store import History

BilledOption = Annotated[
    bool,
    typer.Option(
        "--billed", help="Compare with the service's bill; needs the key of an admin."
    ),
]


def cost(
    run: NewestRunArgument = None, billed: BilledOption = False, db: DbOption = HISTORY
) -> None:
    """Print the tokens of a run by model and kind, what they cost by the price list, and what was billed for them.

    Recorded are the answers, scores and train steps of the history. A bill has more: answers that a crash
    lost, and repeated train steps.

    Examples:

        rtl-distill admin cost nightly

        rtl-distill admin cost nightly --billed
    """
    from rtl_core.reporting.console import rich_table
    from rtl_core.run.account import cost_table
    from rtl_core.run.folder import config_of

    history = open_history(db)
    config = config_of(history, pick_run(history, run))
    Console().print(rich_table(asyncio.run(cost_table(history, config, billed=billed))))


def print_left(history: History, config: RunConfig, *, delete: bool, yes: bool) -> None:
    """Print the weights in a run's account that no run of the history has recorded. `delete` those that no run
    needs, after a question unless `yes`."""
    from rtl_core.backend.tinker.account import delete_weights
    from rtl_core.reporting.console import rich_table
    from rtl_core.run.account import weights_left

    table, unused = asyncio.run(weights_left(history, config))
    Console().print(rich_table(table))
    if not delete or not unused:
        typer.echo(f"--delete would delete {len(unused)} saved weights")
        return
    if not yes:
        runs = ", ".join(sorted(set(unused.values())))
        typer.confirm(f"Delete {len(unused)} saved weights of {runs} for good?", abort=True)
    count = asyncio.run(delete_weights(config, unused))
    typer.echo(f"deleted {count} of {len(unused)} saved weights")
