"""Arguments that several commands take."""

from __future__ import annotations

from importlib import resources
from typing import Annotated

import typer

# By their files: `rtl_core.config`, which lists them too, imports what `--help` should not wait for.
_SHIPPED = sorted(
    path.name.removesuffix(".toml") for path in resources.files("rtl_core").joinpath("config", "shipped").iterdir()
)
_CONFIG = f"A TOML file, or a shipped configuration: {', '.join(_SHIPPED)}."

ConfigArgument = Annotated[str, typer.Argument(help=_CONFIG)]
ConfigOption = Annotated[str, typer.Option("--config", help=_CONFIG)]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override one key; may be repeated.")
]
