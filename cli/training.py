"""The life of a run: `config`, `check`, `train`, `pause`, `resume`, `set-aside` and `checkpoints`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.text import Text

from rtl_core.errors import ConfigError, HistoryError
from rtl_distill.cli.arguments import (
    ConfigArgument,
    DbOption,
    RunArgument,
    SetOption,
    VerboseOption,
    database_path,
    open_history,
)

if TYPE_CHECKING:
    from rtl_core.types.finding import Finding

TRAIN = "rtl_distill.flows.train:train"
AcceptOption = Annotated[
    bool, typer.Option("--accept-changes", help="Go on with a run although its problems, reward or model changed.")
]


def config(
    config: ConfigArgument = "demo",
    show: Annotated[bool, typer.Option("--show", help="Print every key with its value and meaning, as TOML.")] = False,
    set_: SetOption = None,
) -> None:
    """Check a configuration; with --show print the whole effective one, ready to be saved and edited.

    Examples:

        rtl-distill config --show demo > my-run.toml

        rtl-distill config my-run.toml --set learning.kl_weight=1.0
    """
    from rtl_core.algorithms.base import chosen
    from rtl_core.config import load_config, to_toml

    # What is shown may name a data set that is fetched later.
    checked = load_config(config, set_ or [], check_files=not show)
    chosen(checked)
    if show:
        typer.echo(to_toml(checked), nl=False)
    else:
        typer.echo(f"{config}: a valid configuration of run {checked.run.name!r}; --show prints it")


def check(
    config: ConfigArgument = "demo",
    set_: SetOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the lines as JSON, for programs.")] = False,
) -> None:
    """Look at everything that a run needs, in under a minute, and say of each bad line what to do.

    Credentials, account, models, context, tokenizers, data set, sandbox and tools, Prefect, disk, and what the run can cost at most.
    Nothing is sampled and nothing is written. The exit code is 0 when a run could begin, warnings or not, and 2 when something is wrong.

    Examples:

        rtl-distill check cvdp

        rtl-distill check my-run.toml --set sampling.max_tokens=24576

        rtl-distill check cvdp --json
    """
    import asyncio
    import json
    import logging
    from dataclasses import asdict

    from rtl_core.config import load_config
    from rtl_core.run.check.preflight import preflight
    from rtl_distill.cli.console import quiet

    settings, missing = load_config(config, set_ or [], check_files=False), None
    try:
        load_config(config, set_ or [])
    except ConfigError as error:
        missing = error
    with quiet(logging.ERROR, "rtl_distill", "huggingface_hub"):  # what they warn of has a line of its own
        findings = asyncio.run(preflight(settings, missing))
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        _show_findings(findings)
    if any(finding.level == "wrong" for finding in findings):
        raise typer.Exit(2)


def _show_findings(findings: list[Finding]) -> None:
    from rich import box
    from rich.table import Table

    styles = {"ok": "green", "warning": "yellow", "wrong": "bold red"}
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("about", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("found, and what to do", overflow="fold")
    for finding in findings:
        words = Text(finding.text + (f"\n-> {finding.remedy}" if finding.remedy else ""))
        table.add_row(finding.about, Text(finding.level, style=styles[finding.level]), words)
    console = Console()
    console.print(table)
    counts = {level: sum(finding.level == level for finding in findings) for level in styles}
    console.print(", ".join(f"{count} {level}" for level, count in counts.items()), highlight=False)


def train(
    config: ConfigArgument = "demo",
    set_: SetOption = None,
    accept_changes: AcceptOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Train a student, or go on with a run that stopped.

    A run is known by its name (`run.name`): the same command after a crash continues from the last recorded stage. What
    `rtl-distill check` finds wrong ends it before anything is sampled.

    Examples:

        rtl-distill train                                    # the embedded demo, minutes on two cores

        rtl-distill train demo --set run.name=second --set run.seed=1

        rtl-distill train my-run.toml
    """
    import asyncio

    from rtl_core.config import load_config
    from rtl_distill.cli.flow import run_flow

    # Checked here as well, so that a mistake is told at once and without a server.
    settings = load_config(config, set_ or [])
    if settings.backend.name != "tinker" or not settings.tinker.is_local or settings.tinker.teacher_apart:
        from rtl_core.backend.registry import backend_of
        from rtl_core.run.check.readiness import ready

        asyncio.run(ready(backend_of(settings), settings, lambda line: None))
    title = f"train {settings.run.name}"
    ahead = ["rtl_core.backend.tinker", "transformers.models.auto.tokenization_auto"]
    run_flow(TRAIN, config, set_ or [], accept_changes, title=title, verbose=verbose, ahead=ahead)


def pause(run: RunArgument, db: DbOption = None) -> None:
    """Stop a run after the step under way, and keep it from being started until `resume`.

    To stop within seconds instead, end it with Ctrl-C or cancel it in Prefect: rollouts under way are then sampled again.

    Examples:

        rtl-distill pause nightly
    """
    from rtl_core.run.folder import config_of, pause_path
    from rtl_core.run.lock import is_held, lock_path

    history = open_history(db)
    config = config_of(history, run)
    if history.existing_run(run).status == "finished":
        raise HistoryError(f"run {run!r} has finished: there is nothing to pause")
    path = pause_path(config)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    at_work = is_held(lock_path(config))
    now = "stops after the step under way" if at_work else "is not at work on this machine and stays so"
    typer.echo(f"{run} {now}; `rtl-distill resume {run}` goes on")


def resume(
    run: RunArgument,
    release: Annotated[
        bool, typer.Option("--release", help="Only lift the pause: the next trigger of its deployment goes on.")
    ] = False,
    accept_changes: AcceptOption = False,
    verbose: VerboseOption = False,
    db: DbOption = None,
) -> None:
    """Go on with a run that was paused, cancelled or broken off, with the configuration that the history holds.

    Examples:

        rtl-distill resume demo

        rtl-distill resume nightly --release
    """
    from rtl_core.run.folder import config_of, pause_path, write_config
    from rtl_distill.cli.flow import run_flow

    settings = config_of(open_history(db, forward=True), run)
    pause_path(settings).unlink(missing_ok=True)
    if release:
        typer.echo(f"{run} is no longer paused")
        return
    path = write_config(settings)
    run_flow(TRAIN, str(path), [], accept_changes, title=f"train {run}", verbose=verbose)


def set_aside(run: RunArgument, db: DbOption = None) -> None:
    """Have the next step of a run sampled anew: its answers stay in the history, marked `set_aside`, and are not trained on.

    A run does so by itself, once for each step, where trainer and sampler disagree on what was sampled.

    Examples:

        rtl-distill set-aside nightly && rtl-distill resume nightly
    """
    from rtl_core.history.store import History
    from rtl_core.run.folder import config_of
    from rtl_core.run.lock import is_held, lock_path

    if is_held(lock_path(config_of(open_history(db), run))):
        raise HistoryError(f"run {run!r} is at work", f"stop it first: rtl-distill pause {run}")
    history = History(database_path(db))
    step = next((state.step for state in history.steps(run) if state.status == "planned"), None)
    if step is None:
        raise HistoryError(f"{run!r} has no step that is planned and not trained: there is nothing to set aside")
    count = history.set_step_aside(run, step)
    typer.echo(f"step {step + 1}: {count} answers are set aside; `rtl-distill resume {run}` samples the step anew")


ExportOption = Annotated[
    Path | None, typer.Option("--export", metavar="DIR", help="Write the adapter into this folder, with a model card.")
]
MergedOption = Annotated[
    bool,
    typer.Option("--merged", help="With --export: write base and adapter as one model that transformers loads alone."),
]
BaseOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="With --merged: the base model; left out: of tinker.local_models, a fetched one, or one of the package.",
    ),
]
DtypeOption = Annotated[
    Literal["float32", "bfloat16", "float16"] | None,
    typer.Option(help="With --merged: of the weights; left out, the base's own."),
]
WhichOption = Annotated[
    str,
    typer.Option(metavar="N|last|best", help="Which: after N train steps, the last, or the best held-out pass@1."),
]


def checkpoints(
    run: RunArgument,
    export: ExportOption = None,
    merged: MergedOption = False,
    base: BaseOption = None,
    dtype: DtypeOption = None,
    step: WhichOption = "last",
    db: DbOption = None,
) -> None:
    """List the weights that a run keeps on the service; with --export write them as files: the adapter (peft's format), or a whole model.

    With --merged the model's log-probabilities are compared with those that the service gave these weights, and nothing is written
    where they differ by more than arithmetic explains.

    Examples:

        rtl-distill checkpoints demo

        rtl-distill checkpoints demo --export adapters/demo --step best

        rtl-distill checkpoints demo --export models/demo --merged

        rtl-distill checkpoints RUN --export models/RUN --merged --base models/Qwen3.6-35B-A3B --dtype bfloat16
    """
    import asyncio

    from rtl_core.run.export import checkpoint_table, export_adapter, export_merged
    from rtl_core.run.folder import config_of

    if merged and export is None:
        raise typer.BadParameter("says how --export writes: name its folder", param_hint="--merged")
    if (base or dtype) and not merged:
        raise typer.BadParameter("is for --merged", param_hint="--base" if base else "--dtype")

    history = open_history(db)
    config = config_of(history, run)
    if export is None:
        Console().print(checkpoint_table(history, config))
        return
    if merged:
        work = export_merged(history, config, step, export, typer.echo, base=base, dtype=dtype)
    else:
        work = export_adapter(history, config, step, export, typer.echo)
    for path in asyncio.run(work):
        typer.echo(str(path))
