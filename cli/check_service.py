"""`rtl-distill check-service`: whether a server that speaks Tinker's protocol can carry a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

MODEL = typer.Option(
    "--model", metavar="NAME=FOLDER", help="A served model's folder, to compare with transformers; may be repeated."
)
STUDENT = typer.Option(
    help="The model to train.", show_default="the first --model, else the first trainable one that is served"
)
ONLY = typer.Option("--only", metavar="CASE", help="A case or a group, with what it needs; may be repeated.")
TOLERANCE = typer.Option(
    min=0.0, help="By how much equal log-probabilities may differ in the mean, in nats; one by ten times as much."
)
AS_JSON = typer.Option("--json", metavar="FILE", help="Write what was found to FILE, too.")


def check_service(
    url: Annotated[str, typer.Argument(help="The server, as in TINKER_BASE_URL: http://HOST:PORT.")],
    model: Annotated[list[str] | None, MODEL] = None,
    student: Annotated[str | None, STUDENT] = None,
    only: Annotated[list[str] | None, ONLY] = None,
    rank: Annotated[int, typer.Option(min=1, help="Rank of the adapters.")] = 8,
    tolerance: Annotated[float, TOLERANCE] = 0.02,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds that a case may take.")] = 300.0,
    minutes: Annotated[float, typer.Option(min=0.1, help="Minutes that all cases may take.")] = 60.0,
    as_json: Annotated[Path | None, AS_JSON] = None,
) -> None:
    """Certify a server: hold it to everything that a run asks of Tinker's protocol, and say what a run could not do on it.

    Some fifty cases: the SDK's calls, saved weights, arithmetic that must agree, and the answers to wrong requests. With the folder of a
    served model (`--model`) its log-probabilities, the gradient of each loss and a step of AdamW are compared with transformers and
    torch. The cases train tiny adapters, sample some thousand tokens in all, and delete what they saved. The key is TINKER_API_KEY, as for
    the SDK.

    The exit code is 0 when everything that each run needs works (options that do not are told), 1 when something is missing or differs,
    2 when there is no key, or an argument is wrong.

    Examples:

        rtl-distill check-service http://127.0.0.1:10610

        rtl-distill check-service http://gpu7:8000 --model Qwen/Qwen3-8B=models/Qwen3-8B --json gpu7.json

        rtl-distill check-service http://gpu7:8000 --only resume --only faults --timeout 900
    """
    import logging
    import os
    import warnings

    from rich.console import Console

    os.environ.setdefault("TINKER_TELEMETRY", "0")  # read when the SDK is imported
    from transformers.utils.logging import disable_progress_bar

    from rtl_core.backend.certify.bench import Server
    from rtl_core.backend.certify.plugin import examine
    from rtl_distill.cli.console import quiet

    server = Server(url, student=student, folders=folders_of(model or []), rank=rank, tolerance=tolerance)
    disable_progress_bar()
    # What they warn of has a line of its own.
    with quiet(logging.CRITICAL, "tinker", "huggingface_hub"), warnings.catch_warnings(action="ignore"):
        found = examine(server, only or [], case_s=timeout, whole_s=60 * minutes, console=Console())
    if as_json is not None:
        found.write(as_json)
    found.show(Console())
    if not found.fit:
        raise typer.Exit(1)


def folders_of(models: list[str]) -> dict[str, Path]:
    """Name -> folder of each NAME=FOLDER of `--model`. ConfigError: a text has another form, or no model is there."""
    from rtl_core.errors import ConfigError

    folders = {}
    for text in models:
        name, _, folder = text.partition("=")
        if not name or not folder:
            raise ConfigError(f"--model {text}: must be NAME=FOLDER")
        folders[name] = Path(folder).expanduser()
        if not (folders[name] / "config.json").is_file():
            raise ConfigError(f"--model {name}={folders[name]}: there is no config.json in that folder")
    return folders
