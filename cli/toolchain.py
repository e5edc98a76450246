"""`rtl-distill toolchain`: the tools that grading uses, and those that this environment cannot hold."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class Action(StrEnum):
    """What to do with the toolchain."""

    SHOW = "show"
    INSTALL = "install"


class Source(StrEnum):
    """What the toolchain is made of."""

    DOCKER = "docker"
    DEBOOTSTRAP = "debootstrap"
    PIP = "pip"


def toolchain(
    action: Annotated[Action, typer.Argument(help="`show` what there is, or `install` what is missing.")] = Action.SHOW,
    source: Annotated[
        Source | None,
        typer.Option(
            help="Take the simulation image's files from a running engine, make them by debootstrap (as root), or install "
            "cocotb 1.9 alone by pip. Without it: docker where an engine has the image, else debootstrap."
        ),
    ] = None,
) -> None:
    """Show the simulators and libraries that decide verdicts, or install those of the simulation image.

    `install` puts the files of the simulation image (about 1 GB: Icarus 12, Verilator, Yosys, cocotb of both generations)
    under ~/.local/share/rtl-distill/tools, or RTL_DISTILL_TOOLS. From then on the bubblewrap executor runs the very tools
    that the docker executor runs. Remove its directory `root` to use this machine's own again.

    Examples:

        rtl-distill toolchain

        rtl-distill toolchain install

        rtl-distill toolchain install --source pip
    """
    from rich.console import Console
    from rich.table import Table

    from rtl_core.grading.executors.installed import InstalledToolchain, install
    from rtl_core.grading.executors.toolbox import Toolbox, install_older_cocotb, tools_home

    console = Console()
    if action is Action.INSTALL and source is Source.PIP:
        install_older_cocotb()
    elif action is Action.INSTALL:
        with Console(stderr=True).status("installing the toolchain"):
            install(None if source is None else "docker" if source is Source.DOCKER else "debootstrap")
    installed = InstalledToolchain.find()
    versions = (installed or Toolbox.of_this_machine()).versions()
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
        console.print(f"installed toolchain, made of {installed.made_of}", highlight=False, soft_wrap=True)
    console.print(f"further tools: {tools_home()}", highlight=False, soft_wrap=True)
