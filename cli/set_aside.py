"""`rtl-distill set-aside`: have the answers of a step that cannot be trained sampled anew."""

from __future__ import annotations

from typing import Annotated

import typer

from rtl_distill.cli.database import DbOption, database_path, open_history


def set_aside(run: Annotated[str, typer.Argument(help="Name of the run.")], db: DbOption = None) -> None:
    """Have the next step of a run sampled anew: its answers stay in the history, marked `set_aside`, and are not trained on.

    A run does so by itself, once for each step, where trainer and sampler disagree on what was sampled.

    Examples:

        rtl-distill set-aside nightly && rtl-distill resume nightly
    """
    from rtl_core.errors import HistoryError
    from rtl_core.history.store import History
    from rtl_core.run.folder import config_of
    from rtl_core.run.lock import is_held, lock_path

    if is_held(lock_path(config_of(open_history(db), run))):
        raise HistoryError(f"run {run!r} is at work", f"stop it first: rtl-distill pause {run}")
    history = History(database_path(db))
    step = next((state.step for state in history.steps(run) if state.status == "planned"), None)
    if step is None:
        raise HistoryError(f"every planned step of {run!r} is trained")
    count = history.set_step_aside(run, step)
    typer.echo(f"step {step + 1}: {count} answers are set aside; `rtl-distill resume {run}` samples the step anew")
