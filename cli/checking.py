"""The command `check`: can a run start, what can it cost, and what is its whole configuration?"""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rtl_core.errors import ConfigError, UserError
from rtl_distill.cli.arguments import ConfigArgument, SetOption, announce

if TYPE_CHECKING:
    from rtl_core.config import RunConfig
    from rtl_core.types.finding import Finding

_of_estimate = partial(typer.Option, rich_help_panel="The estimate")
ShowOption = Annotated[
    bool,
    typer.Option("--show", help="Only print every key with its value and meaning, as TOML."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Only print the findings, as JSON.")]
EstimateOption = Annotated[
    bool,
    _of_estimate("--estimate", help="Only print the estimate."),
]
ProblemsOption = Annotated[
    int | None,
    _of_estimate(
        min=1,
        help="Size of a data set that is not on this machine (default: size of the public set).",
    ),
]
CompletionOption = Annotated[
    float | None,
    _of_estimate("--completion-tokens", min=1, help="Mean tokens per answer."),
]
PricesOption = Annotated[
    Path | None,
    _of_estimate(help="Price list (default: the configuration's, else the shipped one)."),
]
DownloadOption = Annotated[
    bool,
    _of_estimate(
        "--download", help="Download the student's tokenizer if it is not on this machine."
    ),
]


def check(
    config: ConfigArgument = "demo",
    set_: SetOption = None,
    show: ShowOption = False,
    as_json: JsonOption = False,
    estimate: EstimateOption = False,
    problems: ProblemsOption = None,
    completion: CompletionOption = None,
    prices: PricesOption = None,
    download: DownloadOption = False,
) -> None:
    """Check everything a run needs, say how to fix each problem, and estimate tokens, dollars and hours.

    Checks credentials, account, models, context, tokenizers, data set, sandbox and tools, Prefect, and disk,
    in under a minute. Nothing is sampled or written. Exit code 0 when a run could start, even with
    warnings, and 2 when something is wrong.

    `at most` is the bill that the run cannot exceed: every answer reaches its token limit and is trained
    on, every group is replaced as often as the configuration allows, and no prompt is cached. `likely` uses
    measured lengths, shares and speeds if the history has rollouts of the same student, and assumed ones
    otherwise.

    Examples:

        rtl-distill check cvdp

        rtl-distill check my-run.toml --set sampling.max_tokens=24576

        rtl-distill check cvdp --estimate --completion-tokens 2500

        rtl-distill check demo --show > my-run.toml
    """
    if sum((show, as_json, estimate)) > 1:
        raise ConfigError("--show, --json and --estimate exclude one another", "give one")
    announce("reading configuration, service, models, problems and tools")
    from rtl_core.algorithms.base import chosen
    from rtl_core.config import load_config, to_toml
    from rtl_distill.cli.estimate import print_estimate

    changes = list(set_ or [])
    if prices is not None:
        changes.append(f"cost.prices={prices}")
    settings = load_config(config, changes, check_files=False)
    chosen(settings)
    assumed = (problems, completion, download)
    if show:
        typer.echo(to_toml(settings), nl=False)
        return
    if estimate:
        print_estimate(settings, *assumed)
        return
    findings = _findings(settings, config, changes)
    if as_json:
        _print_json(findings)
    else:
        _show_findings(findings)
        try:
            print_estimate(settings, *assumed)
        except UserError as error:
            typer.echo(f"estimate: {error}")
    if any(finding.level == "wrong" for finding in findings):
        raise typer.Exit(2)


def _findings(settings: RunConfig, config: str, overrides: list[str]) -> list[Finding]:
    import asyncio
    import logging

    from localtinker.quiet import quiet
    from rtl_core.config import load_config
    from rtl_core.run.check.preflight import preflight

    missing = None
    try:
        load_config(config, overrides)
    except ConfigError as error:
        missing = error
    # The findings contain the warnings of these loggers.
    with quiet(logging.ERROR, "rtl_distill", "huggingface_hub"):
        return asyncio.run(preflight(settings, missing, config))


def _print_json(findings: list[Finding]) -> None:
    import json
    from dataclasses import asdict

    typer.echo(json.dumps([asdict(finding) for finding in findings], indent=1))


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
