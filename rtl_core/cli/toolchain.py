"""`rtl-distill toolchain`: the tools that grading uses, and those that this environment cannot hold."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class Action(StrEnum):
    """What to do with the toolchain."""

    SHOW = "show"
    INSTALL = "install"


def toolchain(
    action: Annotated[Action, typer.Argument(help="`show` what there is, or `install` what is missing.")] = Action.SHOW,
) -> None:
    """Show the simulators and libraries that decide verdicts, or install what older CVDP harnesses need besides.

    `install` puts cocotb 1.9, for harnesses of CVDP v1.0, into a directory of its own
    (~/.local/share/rtl-distill/tools, or RTL_DISTILL_TOOLS): it cannot live beside cocotb 2 in one environment.

    Examples:

        rtl-distill toolchain

        rtl-distill toolchain install
    """
    from rich.console import Console
    from rich.table import Table

    from rtl_core.grading.executors.toolbox import Toolbox, install_older_cocotb, tools_home

    console = Console()
    if action is Action.INSTALL:
        install_older_cocotb()
    versions = Toolbox.of_this_machine().versions()
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
    console.print(f"further tools: {tools_home()}", highlight=False, soft_wrap=True)
