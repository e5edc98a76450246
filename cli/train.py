"""`rtl-distill train`: run the train flow in this process."""

from __future__ import annotations

from typing import Annotated

import typer

from rtl_distill.cli.arguments import ConfigArgument, SetOption


def train(
    config: ConfigArgument = "demo",
    set_: SetOption = None,
    accept_changes: Annotated[
        bool, typer.Option("--accept-changes", help="Go on with a run although its problems, reward or model changed.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show Prefect's own log lines too.")] = False,
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
        from rtl_core.run.check.known import ready

        asyncio.run(ready(backend_of(settings), settings, lambda line: None))
    title = f"train {settings.run.name}"
    ahead = ["rtl_core.backend.certify.plugin", "transformers.models.auto.tokenization_auto"]
    run_flow(
        "rtl_distill.flows.train:train", config, set_ or [], accept_changes, title=title, verbose=verbose, ahead=ahead
    )
