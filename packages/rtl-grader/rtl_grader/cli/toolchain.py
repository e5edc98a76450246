"""The command `toolchain`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table

from rtl_grader.words import command

USES = {
    "python": "harnesses",
    "cocotb": "harnesses of CVDP v1.1 and the starter set",
    "cocotb1": "harnesses of CVDP v1.0 that import cocotb.runner",
    "pytest": "harnesses",
    "iverilog": "simulation, syntax",
    "verilator": "lint, simulation of some harnesses",
    "yosys": "synthesis harnesses",
}
"""Tool -> what needs it."""


def toolchain(
    action: Annotated[
        Literal["show", "install"],
        typer.Argument(help="`show` the installed tools, or `install` missing ones."),
    ] = "show",
    source: Annotated[
        Literal["docker", "debootstrap", "pip"] | None,
        typer.Option(
            help="docker: copy the simulation image's files from a running engine; "
            "debootstrap: build them (as root); pip: install only cocotb 1.9. "
            "Default: docker if an engine has the image, else debootstrap."
        ),
    ] = None,
) -> None:
    """Show the simulators and libraries that decide verdicts, or install those of the simulation image.

    `install` puts the files of the simulation image (about 1 GB: Icarus 13, Verilator, Yosys, cocotb 1 and 2)
    under ~/.local/share/rtl-distill/tools, or RTL_DISTILL_TOOLS. The bubblewrap executor then runs the same
    tools as the docker executor. Remove the directory `root` there to use this machine's own tools again.

    Examples:

        rtl-grader toolchain

        rtl-grader toolchain install

        rtl-grader toolchain install --source pip
    """
    from rtl_grader.grading.executors.install import install, install_older_cocotb
    from rtl_grader.grading.executors.toolchain import Toolchain, tools_home

    console = Console()
    newer = command("toolchain install")
    if action == "install":
        if source == "pip":
            install_older_cocotb()
        else:
            with Console(stderr=True).status("installing the toolchain"):
                install(source)
    installed = Toolchain.installed()
    versions = (installed or Toolchain.of_this_machine()).tools
    table = Table("tool", "version", "used for", title="bubblewrap executor")
    for tool, use in USES.items():
        remedy = newer if tool == "cocotb1" else f"apt-get install {tool}"
        table.add_row(tool, versions.get(tool) or f"missing: {remedy}", use)
    console.print(table)
    origin = f"these are this machine's own tools; to use the simulation image's: {newer}"
    if installed is not None:
        origin = f"installed toolchain, made of {versions['toolchain']}"
    for line in (origin, f"further tools: {tools_home()}"):
        console.print(line, highlight=False, soft_wrap=True)
