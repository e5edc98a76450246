"""Commands about a training run: `train`, `pause`, `resume`, `admin set-aside` and `admin checkpoints`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from rtl_core.errors import ConfigError, HistoryError
from rtl_distill.cli.arguments import (
    HISTORY,
    ConfigArgument,
    DbOption,
    RunArgument,
    SetOption,
    VerboseOption,
    open_history,
)

TRAIN = "rtl_distill.flows.train:train"
AcceptOption = Annotated[
    bool,
    typer.Option(
        "--accept-changes", help="Continue a run even if its problems, reward or model changed."
    ),
]


def train(
    config: ConfigArgument = "demo",
    set_: SetOption = None,
    accept_changes: AcceptOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Train a student, or continue a run that stopped.

    A run is identified by `run.name`: after a crash, the same command continues from the last recorded
    stage. Everything that `rtl-distill check` reports as wrong stops the run before anything is sampled.

    Examples:

        rtl-distill train                                    # the embedded demo, minutes on two cores

        rtl-distill train demo --set run.name=second --set run.seed=1

        rtl-distill train my-run.toml
    """
    typer.echo(
        "reading the configuration"
    )  # at once: the imports take seconds on a busy machine
    import asyncio

    from rtl_core.config import load_config
    from rtl_core.run.folder import command_for, pause_path
    from rtl_distill.cli.flow import run_flow

    # Checked here too, so that a mistake is reported at once and without a server.
    settings = load_config(config, set_ or [])
    if pause_path(settings).exists():
        raise ConfigError(
            f"run {settings.run.name!r} is paused",
            f"{command_for(settings, 'resume')} continues it",
        )
    if settings.backend.name != "tinker" or not settings.tinker.all_local:
        from rtl_core.backend.registry import backend_of
        from rtl_core.run.check.readiness import ready

        asyncio.run(ready(backend_of(settings), settings, lambda line: None))
    title = f"train {settings.run.name}"
    ahead = ["rtl_core.backend.tinker", "transformers.models.auto.tokenization_auto"]
    run_flow(
        TRAIN, config, set_ or [], accept_changes, title=title, verbose=verbose, ahead=ahead
    )


def pause(run: RunArgument, db: DbOption = HISTORY) -> None:
    """Stop a run after its current step, and keep it from starting until `resume`.

    To stop it within seconds, press Ctrl-C or cancel it in Prefect; unfinished rollouts are then sampled again.

    Examples:

        rtl-distill pause nightly
    """
    from rtl_core.run.folder import command_for, config_of, pause_path
    from rtl_core.run.lock import is_held, lock_path

    history = open_history(db)
    config = config_of(history, run)
    if history.existing_run(run).status == "finished":
        raise HistoryError(f"run {run!r} has finished: there is nothing to pause")
    path = pause_path(config)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    running = is_held(lock_path(config))
    effect = (
        "stops after the current step"
        if running
        else "is not running on this machine and will not start"
    )
    typer.echo(f"{run} {effect}; {command_for(config, 'resume')} continues it")


def resume(
    run: RunArgument,
    release: Annotated[
        bool,
        typer.Option(
            "--release",
            help="Only lift the pause; the next trigger of its deployment continues the run.",
        ),
    ] = False,
    set_: SetOption = None,
    accept_changes: AcceptOption = False,
    verbose: VerboseOption = False,
    db: DbOption = HISTORY,
) -> None:
    """Continue a run that was paused, cancelled or interrupted, with the configuration stored in the history.

    Examples:

        rtl-distill resume demo

        rtl-distill resume demo --set run.epochs=4

        rtl-distill resume nightly --release
    """
    from rtl_core.config import load_config
    from rtl_core.run.folder import config_of, pause_path, write_config
    from rtl_distill.cli.flow import run_flow

    settings = config_of(open_history(db, forward=True), run)
    pause_path(settings).unlink(missing_ok=True)
    if release:
        typer.echo(f"{run} is no longer paused")
        return
    path = write_config(settings)
    load_config(path, set_ or [])
    run_flow(
        TRAIN, str(path), set_ or [], accept_changes, title=f"train {run}", verbose=verbose
    )


def set_aside(run: RunArgument, db: DbOption = HISTORY) -> None:
    """Discard the answers of a run's next step, so that it is sampled again. They stay in the history,
    marked `set_aside`.

    A run does this by itself, once per step, when trainer and sampler disagree about the sampled tokens.

    Examples:

        rtl-distill admin set-aside nightly && rtl-distill resume nightly
    """
    from rtl_core.run.folder import command_for, config_of
    from rtl_core.run.lock import is_held, lock_path

    config = config_of(open_history(db), run)
    if is_held(lock_path(config)):
        raise HistoryError(
            f"run {run!r} is running", f"{command_for(config, 'pause')} stops it"
        )
    history = open_history(db, forward=True)
    step = next((state.step for state in history.steps(run) if state.status == "planned"), None)
    if step is None:
        raise HistoryError(
            f"{run!r} has no step that is planned and not trained: there is nothing to set aside"
        )
    count = history.set_step_aside(run, step)
    again = f"{command_for(config, 'resume')} samples the step again"
    typer.echo(f"step {step + 1}: {count} answers are set aside; {again}")


BaseOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="With --merged: base model (default: from tinker.local_models, fetched models, or the package).",
    ),
]
DtypeOption = Annotated[
    Literal["float32", "bfloat16", "float16"] | None,
    typer.Option(help="With --merged: data type of the weights (default: the base's)."),
]
WeightsOption = Annotated[
    str,
    typer.Option(
        metavar="N|last|best",
        help="Weights after N train steps, the last, or the best held-out pass@1.",
    ),
]

AllOption = Annotated[
    bool,
    typer.Option(
        "--all", help="List what else the run's account holds, with what it costs a month."
    ),
]
DeleteOption = Annotated[
    bool,
    typer.Option("--delete", help="With --all: delete what no run needs, after a question."),
]
YesOption = Annotated[bool, typer.Option("--yes", help="With --delete: do not ask.")]


def checkpoints(
    run: RunArgument,
    export: Annotated[
        Path | None,
        typer.Option(
            "--export", metavar="DIR", help="Write the adapter and a model card to this folder."
        ),
    ] = None,
    merged: Annotated[
        bool,
        typer.Option(
            "--merged",
            help="With --export: write base and adapter as one model that transformers can load.",
        ),
    ] = False,
    base: BaseOption = None,
    dtype: DtypeOption = None,
    step: WeightsOption = "last",
    all_: AllOption = False,
    delete: DeleteOption = False,
    yes: YesOption = False,
    db: DbOption = HISTORY,
) -> None:
    """List the weights that a run has on the service, or export them as an adapter (peft's format) or a whole model.

    With --merged, the model's log-probabilities are compared with those of the service. If they differ by
    more than rounding explains, nothing is written.

    With --all, list what else the run's account holds: weights of interrupted attempts of this run, and of runs
    that have neither a history nor a folder here. --delete never deletes weights that the history has recorded,
    that have no mark of a run, or that were saved elsewhere in the last 24 hours.

    Examples:

        rtl-distill admin checkpoints demo

        rtl-distill admin checkpoints demo --export adapters/demo --step best

        rtl-distill admin checkpoints demo --export models/demo --merged

        rtl-distill admin checkpoints nightly --all --delete

        rtl-distill admin checkpoints RUN --export models/RUN --merged --base models/Qwen3.6-35B-A3B --dtype bfloat16
    """
    import asyncio

    from rtl_core.reporting.console import rich_table
    from rtl_core.run.export import checkpoint_table, export_adapter, export_merged
    from rtl_core.run.folder import config_of

    if merged and export is None:
        raise typer.BadParameter("requires --export DIR", param_hint="--merged")
    if (base or dtype) and not merged:
        raise typer.BadParameter(
            "requires --merged", param_hint="--base" if base else "--dtype"
        )

    if delete and not all_:
        raise typer.BadParameter("requires --all", param_hint="--delete")

    history = open_history(db)
    config = config_of(history, run)
    if all_:
        from rtl_distill.cli.accounts import print_left

        print_left(history, config, delete=delete, yes=yes)
        return
    if export is None:
        Console().print(rich_table(asyncio.run(checkpoint_table(history, config))))
        return
    if merged:
        work = export_merged(history, config, step, export, typer.echo, base=base, dtype=dtype)
    else:
        work = export_adapter(history, config, step, export, typer.echo)
    for path in asyncio.run(work):
        typer.echo(str(path))
