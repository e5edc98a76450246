"""`rtl-distill make-models`: make the tiny models of the embedded demo."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer


def make_models(
    output: Annotated[
        Path, typer.Option(help="Folder for a folder of each model and checksums.json; must be new or empty.")
    ],
    seconds: Annotated[
        float, typer.Option(min=1, help="Cut each training after so many seconds [default: the whole recipe].")
    ] = math.inf,
    only: Annotated[list[str] | None, typer.Option(help="Make only this model; may be repeated.")] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads of torch; more than one gains little at this size.")] = 1,
) -> None:
    """Train the tiny tokenizer and models that come with the package from scratch, on train specifications only.

    The shipped models took the whole recipe. A shorter training gives the same files with weaker models.

    Examples:

        rtl-distill make-models --output build/tinymodels

        rtl-distill make-models --output /tmp/quick --seconds 20

        rtl-distill make-models --output /tmp/hard --only teacher --only hard-teacher --only hard-student
    """
    import torch
    from rich.console import Console

    from rtl_core.errors import ConfigError
    from rtl_core.tinymodels import MODEL_NAMES
    from rtl_core.tinymodels.make import CHECKSUMS, RECIPES
    from rtl_core.tinymodels.make import make_models as make

    if output.exists() and any(output.iterdir()):
        raise ConfigError(f"--output {output}: the folder is not empty", "name a new one")
    if unknown := sorted(set(only or []) - set(MODEL_NAMES)):
        raise ConfigError(f"--only {unknown[0]}: there is no such model", f"choose among {', '.join(MODEL_NAMES)}")
    names = [name for name in MODEL_NAMES if only is None or name in only]
    for name in names:
        if (start := RECIPES[name].start) is not None and start not in names:
            raise ConfigError(f"--only {name}: it goes on from the {start}", f"add --only {start}")
    torch.set_num_threads(threads)
    console = Console()

    def report(name: str, step: int, loss: float, elapsed: float) -> None:
        console.print(f"{name}: step {step}, loss {loss:.4f} per answer token, {elapsed:.0f} s")

    for name, steps in make(output, seconds, names, report).items():
        console.print(f"{name}: {steps} steps, in {output / name}", soft_wrap=True)
    console.print(f"checksums in {output / CHECKSUMS}", soft_wrap=True)
