"""Commands about a training run: `config`, `check`, `train`, `pause`, `resume`, `set-aside` and `checkpoints`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rtl_core.errors import ConfigError, HistoryError
from rtl_distill.cli.arguments import (
    ConfigArgument,
    DbOption,
    RunArgument,
    SetOption,
    VerboseOption,
    open_history,
)

if TYPE_CHECKING:
    from rtl_core.types.finding import Finding

TRAIN = "rtl_distill.flows.train:train"
AcceptOption = Annotated[
    bool,
    typer.Option(
        "--accept-changes", help="Continue a run even if its problems, reward or model changed."
    ),
]


def config(
    config: ConfigArgument = "demo",
    show: Annotated[
        bool,
        typer.Option("--show", help="Print every key with its value and meaning, as TOML."),
    ] = False,
    set_: SetOption = None,
) -> None:
    """Check a configuration, or print all of it with --show, ready to be saved and edited.

    Examples:

        rtl-distill config --show demo > my-run.toml

        rtl-distill config my-run.toml --set learning.kl_weight=1.0
    """
    from rtl_core.algorithms.base import chosen
    from rtl_core.config import load_config, to_toml

    settings = load_config(
        config, set_ or [], check_files=not show
    )  # with --show, the data set may be fetched later
    chosen(settings)
    if show:
        typer.echo(to_toml(settings), nl=False)
    else:
        typer.echo(
            f"{config}: a valid configuration of run {settings.run.name!r}; --show prints it"
        )


def check(
    config: ConfigArgument = "demo",
    set_: SetOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the findings as JSON.")
    ] = False,
) -> None:
    """Check everything a run needs, in under a minute, and say how to fix each problem.

    Checks credentials, account, models, context, tokenizers, data set, sandbox and tools, Prefect, disk,
    and the maximum cost. Nothing is sampled or written. Exit code 0 when a run could start, even with
    warnings, and 2 when something is wrong.

    Examples:

        rtl-distill check cvdp

        rtl-distill check my-run.toml --set sampling.max_tokens=24576

        rtl-distill check cvdp --json
    """
    import asyncio
    import json
    import logging
    from dataclasses import asdict

    from localtinker.quiet import quiet
    from rtl_core.config import load_config
    from rtl_core.run.check.preflight import preflight

    settings, missing = load_config(config, set_ or [], check_files=False), None
    try:
        load_config(config, set_ or [])
    except ConfigError as error:
        missing = error
    with quiet(
        logging.ERROR, "rtl_distill", "huggingface_hub"
    ):  # the findings contain their warnings
        findings = asyncio.run(preflight(settings, missing))
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        _show_findings(findings)
    if any(finding.level == "wrong" for finding in findings):
        raise typer.Exit(2)


def _show_findings(findings: list[Finding]) -> None:
    styles = {"ok": "green", "warning": "yellow", "wrong": "bold red"}
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("check", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("finding, and what to do", overflow="fold")
    for finding in findings:
        words = Text(finding.text + (f"\n-> {finding.remedy}" if finding.remedy else ""))
        table.add_row(finding.about, Text(finding.level, style=styles[finding.level]), words)
    console = Console()
    console.print(table)
    counts: Counter[str] = Counter(finding.level for finding in findings)
    console.print(", ".join(f"{counts[level]} {level}" for level in styles), highlight=False)


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
    from rtl_distill.cli.flow import run_flow

    # Checked here too, so that a mistake is reported at once and without a server.
    settings = load_config(config, set_ or [])
    if (
        settings.backend.name != "tinker"
        or not settings.tinker.is_local
        or settings.tinker.teacher_apart
    ):
        from rtl_core.backend.registry import backend_of
        from rtl_core.run.check.readiness import ready

        asyncio.run(ready(backend_of(settings), settings, lambda line: None))
    title = f"train {settings.run.name}"
    ahead = ["rtl_core.backend.tinker", "transformers.models.auto.tokenization_auto"]
    run_flow(
        TRAIN, config, set_ or [], accept_changes, title=title, verbose=verbose, ahead=ahead
    )


def pause(run: RunArgument, db: DbOption = None) -> None:
    """Stop a run after its current step, and keep it from starting until `resume`.

    To stop it within seconds, press Ctrl-C or cancel it in Prefect; unfinished rollouts are then sampled again.

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
    running = is_held(lock_path(config))
    effect = (
        "stops after the current step"
        if running
        else "is not running on this machine and will not start"
    )
    typer.echo(f"{run} {effect}; `rtl-distill resume {run}` continues it")


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
    db: DbOption = None,
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


def set_aside(run: RunArgument, db: DbOption = None) -> None:
    """Discard the answers of a run's next step, so that it is sampled again. They stay in the history,
    marked `set_aside`.

    A run does this by itself, once per step, when trainer and sampler disagree about the sampled tokens.

    Examples:

        rtl-distill set-aside nightly && rtl-distill resume nightly
    """
    from rtl_core.run.folder import config_of
    from rtl_core.run.lock import is_held, lock_path

    if is_held(lock_path(config_of(open_history(db), run))):
        raise HistoryError(f"run {run!r} is running", f"stop it first: rtl-distill pause {run}")
    history = open_history(db, forward=True)
    step = next((state.step for state in history.steps(run) if state.status == "planned"), None)
    if step is None:
        raise HistoryError(
            f"{run!r} has no step that is planned and not trained: there is nothing to set aside"
        )
    count = history.set_step_aside(run, step)
    typer.echo(
        f"step {step + 1}: {count} answers are set aside; `rtl-distill resume {run}` samples the step again"
    )


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
    db: DbOption = None,
) -> None:
    """List the weights that a run has on the service, or export them as an adapter (peft's format) or a whole model.

    With --merged, the model's log-probabilities are compared with those of the service. If they differ by
    more than rounding explains, nothing is written.

    Examples:

        rtl-distill checkpoints demo

        rtl-distill checkpoints demo --export adapters/demo --step best

        rtl-distill checkpoints demo --export models/demo --merged

        rtl-distill checkpoints RUN --export models/RUN --merged --base models/Qwen3.6-35B-A3B --dtype bfloat16
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

    history = open_history(db)
    config = config_of(history, run)
    if export is None:
        Console().print(rich_table(asyncio.run(checkpoint_table(history, config))))
        return
    if merged:
        work = export_merged(history, config, step, export, typer.echo, base=base, dtype=dtype)
    else:
        work = export_adapter(history, config, step, export, typer.echo)
    for path in asyncio.run(work):
        typer.echo(str(path))
