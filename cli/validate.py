"""`rtl-distill validate`: do the problems' harnesses tell right from wrong?"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from rtl_distill.cli.arguments import ConfigArgument, SetOption


class LevelOption(StrEnum):
    """How much is checked."""

    FULL = "full"
    QUICK = "quick"


def validate(
    config: ConfigArgument = "demo",
    source: Annotated[
        list[str] | None,
        typer.Option(
            "--source",
            metavar="KIND[=PATH]",
            help="Validate this set instead of the configuration's; `rtl-distill problems sources` lists all. May be repeated.",
        ),
    ] = None,
    set_: SetOption = None,
    level: Annotated[
        LevelOption, typer.Option(help="full: every check; quick: what a training run checks.")
    ] = LevelOption.FULL,
    mutants: Annotated[int, typer.Option(help="Mutants of each golden answer (full level).", min=0)] = 20,
    seeds: Annotated[int, typer.Option(help="Different seeds for each golden answer (full level).", min=1)] = 3,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 when a problem is not fit.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show Prefect's own log lines too.")] = False,
) -> None:
    """Validate problems: golden answers pass, wrong ones fail, verdicts do not flip.

    Prints a table by source and each problem that is not fit with its reason. What was validated once with the same tools is
    taken from the history (`run.history`).

    Examples:

        rtl-distill validate                                # the problems of the demo

        rtl-distill validate --source starter --source verilog-eval=../verilog-eval --source rtllm=../RTLLM

        rtl-distill validate my-run.toml --set grading.executor=docker
    """
    from rtl_core.config import load_config
    from rtl_core.problems.sources import override_of
    from rtl_distill.cli.flow import run_flow

    overrides = list(set_ or [])
    if source:
        overrides = ["run.name=sets", override_of(source), *overrides]
    # Checked here as well, so that a mistake is told at once and without a server.
    load_config(config, overrides)

    found: dict[str, int] = run_flow(
        "rtl_distill.flows.validate:validate",
        config,
        overrides,
        level.value,
        mutants,
        seeds,
        title=f"validate {config}",
        verbose=verbose,
    )
    if strict and set(found) - {"fit", "fit_without_golden", "known"}:
        raise typer.Exit(1)
