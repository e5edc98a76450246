"""The demanded interface restated as a table, and an example of what counts as following it.

A table tells nothing that the problem's own text hides: only names that stand there are listed, and a width only where its number does.
So a prompt with a table is no easier a test than one without for who reads well.
"""

from __future__ import annotations

import re

from rtl_core.types.problem import Interface, Port, Problem

EXAMPLE = """\
Example. Specification: "Module `pulse_cnt`: counts the cycles in which `tick_i` is high. Output `total_o`, 5 bits. Clock `clk_i`. Reset \
`clear`, synchronous, active high."
Right: `module pulse_cnt(input clk_i, input clear, input tick_i, output reg [4:0] total_o);` with \
`always @(posedge clk_i) if (clear) ...`
Wrong, although a good counter: `module counter(input clk, input rst_n, input en, output reg [7:0] count);` with \
`always @(posedge clk or negedge rst_n)`. Module, ports, width, and the reset's name, polarity and kind are not the specified ones."""


def interface_table(problem: Problem) -> str | None:
    """The interface as a Markdown table, or None when the problem's text shows no part of it."""
    interface = problem.interface
    if interface is None:
        return None
    text = "\n".join([problem.prompt, *problem.context.values()])
    words, numbers = (
        set(re.findall(r"[A-Za-z_]\w*", text)),
        set(map(int, re.findall(r"(?<![\w.])\d{1,6}(?![\w.])", text))),
    )
    ports = [port for port in interface.ports if port.name in words]
    if not ports:
        return None
    rows = [_row(port, numbers) for port in ports]
    head = (
        f"The interface once more. Module `{interface.module}`"
        if interface.module in words
        else "The interface once more"
    )
    note = "" if len(ports) == len(interface.ports) else " (as far as it can be read from the specification)"
    parameters = _parameters(interface, words)
    table = "\n".join(["| port | direction | width |", "|---|---|---|", *rows])
    return f"{head}{note}:\n\n{table}" + (f"\n\nParameters: {parameters}." if parameters else "")


def _row(port: Port, numbers: set[int]) -> str:
    width = port.width
    known = width is not None and (width == 1 or width in numbers or width - 1 in numbers)
    return f"| `{port.name}` | {port.direction or 'as specified'} | {width if known else 'as specified'} |"


def _parameters(interface: Interface, words: set[str]) -> str:
    return ", ".join(f"`{p.name}`" for p in interface.parameters if p.name in words)
