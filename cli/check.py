"""`rtl-distill check`: whether a run could begin, before it does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rtl_distill.cli.arguments import ConfigArgument, SetOption

if TYPE_CHECKING:
    from rtl_core.types.finding import Finding


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
    from rtl_core.errors import ConfigError
    from rtl_core.run.check.whole import check_run
    from rtl_distill.cli.quiet import quiet

    settings, missing = load_config(config, set_ or [], check_files=False), None
    try:
        load_config(config, set_ or [])
    except ConfigError as error:
        missing = error
    with quiet(logging.ERROR, "rtl_distill", "huggingface_hub"):  # what they warn of has a line of its own
        findings = asyncio.run(check_run(settings, missing))
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        _show(findings)
    if any(finding.level == "wrong" for finding in findings):
        raise typer.Exit(2)


def _show(findings: list[Finding]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

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
