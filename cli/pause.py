"""`rtl-distill pause` and `rtl-distill resume`."""

from __future__ import annotations

from typing import Annotated

import typer

from rtl_distill.cli.database import DbOption, open_history


def pause(run: Annotated[str, typer.Argument(help="Name of the run.")], db: DbOption = None) -> None:
    """Stop a run after the step under way, and keep it from being started until `resume`.

    To stop within seconds instead, end it with Ctrl-C or cancel it in Prefect: rollouts under way are then sampled again.

    Examples:

        rtl-distill pause nightly
    """
    from rtl_core.errors import HistoryError
    from rtl_core.run.folder import config_of, pause_path

    history = open_history(db)
    path = pause_path(config_of(history, run))
    if history.existing_run(run).status == "finished":
        raise HistoryError(f"run {run!r} has finished: there is nothing to pause")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    typer.echo(f"{run} stops after the step under way; `rtl-distill resume {run}` goes on")


def resume(
    run: Annotated[str, typer.Argument(help="Name of the run.")],
    release: Annotated[
        bool, typer.Option("--release", help="Only lift the pause: the next trigger of its deployment goes on.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show Prefect's own log lines too.")] = False,
    db: DbOption = None,
) -> None:
    """Go on with a run that was paused, cancelled or broken off, with the configuration that the history holds.

    Examples:

        rtl-distill resume demo

        rtl-distill resume nightly --release
    """
    from rtl_core.run.folder import config_of, pause_path, write_config
    from rtl_distill.cli.flow import run_flow

    settings = config_of(open_history(db), run)
    pause_path(settings).unlink(missing_ok=True)
    if release:
        typer.echo(f"{run} is no longer paused")
        return
    path = write_config(settings)

    run_flow("rtl_distill.flows.train:train", str(path), title=f"train {run}", verbose=verbose)
