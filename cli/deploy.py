"""`rtl-distill deploy`: a Prefect server and a worker on this machine, by one command."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Action(StrEnum):
    UP = "up"
    DOWN = "down"
    STATUS = "status"


def deploy(
    action: Annotated[Action, typer.Argument(help="up: start what does not run; down: end it all; status: show it.")],
    file: Annotated[Path, typer.Option(help="The deployments.")] = Path("deployments/prefect.yaml"),
    home: Annotated[Path, typer.Option(help="Working directory of the runs.")] = Path("."),
    folder: Annotated[Path, typer.Option(help="Where logs and Prefect's data lie.")] = Path("runs/deployment"),
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the server, on loopback.")] = 4200,
    database: Annotated[
        str | None,
        typer.Option(
            envvar="PREFECT_SERVER_DATABASE_CONNECTION_URL",
            help="Prefect's database, such as postgresql+asyncpg://user:password@host/prefect; default SQLite.",
            show_envvar=True,
        ),
    ] = None,
) -> None:
    """Bring a whole deployment up on loopback (server, work pool, deployments, worker), or end it.

    TINKER_API_KEY, where it is needed, is taken from this command's environment by the worker; it is stored nowhere.

    Examples:

        rtl-distill deploy up && source runs/deployment/env.sh && prefect deployment run train/nightly --watch

        rtl-distill deploy down
    """
    from rtl_distill.operations.local import LocalDeployment, down, status, up

    place = LocalDeployment(home=home, folder=folder, port=port, database=database)
    if action is Action.UP:
        up(place, file, typer.echo)
        typer.echo(f"ready: http://127.0.0.1:{port}")
        typer.echo(f"  source {folder / 'env.sh'}")
        typer.echo("  .venv/bin/prefect deployment run train/nightly --watch")
    elif action is Action.DOWN:
        down(place, typer.echo)
    else:
        for part, words in status(place).items():
            typer.echo(f"{part:8} {words}")
