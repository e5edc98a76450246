"""`rtl-distill config`: check a configuration and show it whole."""

from __future__ import annotations

from typing import Annotated

import typer

from rtl_distill.cli.arguments import ConfigArgument, SetOption


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
