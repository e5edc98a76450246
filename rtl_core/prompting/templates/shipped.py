"""The templates of the project: the problem's text alone, and with demands on the interface, restated or shown by example.

A table tells nothing that the problem's own text hides: only names that stand there are listed, and a width only where its number does.
So a prompt with a table is no easier a test than one without for who reads well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from rtl_core.prompting.messages import SYSTEM, answer_format, with_context
from rtl_core.prompting.templates import TEMPLATES, Message
from rtl_core.types.problem import Interface, Port, Problem

BRIEF = (
    "Write the Verilog module exactly as specified: names, ports, widths, behaviour. Answer with one fenced code block."
)

EXAMPLE = """\
Example. Specification: "Module `pulse_cnt`: counts the cycles in which `tick_i` is high. Output `total_o`, 5 bits. Clock `clk_i`. Reset \
`clear`, synchronous, active high."
Right: `module pulse_cnt(input clk_i, input clear, input tick_i, output reg [4:0] total_o);` with \
`always @(posedge clk_i) if (clear) ...`
Wrong, although a good counter: `module counter(input clk, input rst_n, input en, output reg [7:0] count);` with \
`always @(posedge clk or negedge rst_n)`. Module, ports, width, and the reset's name, polarity and kind are not the specified ones."""


@TEMPLATES.register("bare")
def bare(problem: Problem, context: Mapping[str, str]) -> list[Message]:
    """The problem's own text alone, for models that were trained on such prompts."""
    return [{"role": "user", "content": with_context(problem.prompt, context)}]


@TEMPLATES.register("brief")
def brief(problem: Problem, context: Mapping[str, str]) -> list[Message]:
    """The demand for the exact interface in one sentence, and the problem: for small models, whose time goes by tokens."""
    return [{"role": "system", "content": BRIEF}, *bare(problem, context)]


@TEMPLATES.register("exact")
def exact(problem: Problem, context: Mapping[str, str]) -> list[Message]:
    """A system message that demands the exact interface, the problem, and the format in which the answer is read."""
    user = f"{with_context(problem.prompt, context)}\n\n{answer_format(problem.targets)}"
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": user}]


@TEMPLATES.register("table")
def table(problem: Problem, context: Mapping[str, str]) -> list[Message]:
    """`exact`, and the interface restated as a table before the format."""
    parts = [with_context(problem.prompt, context), interface_table(problem), answer_format(problem.targets)]
    user = "\n\n".join(part for part in parts if part)
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": user}]


@TEMPLATES.register("examples")
def examples(problem: Problem, context: Mapping[str, str]) -> list[Message]:
    """`exact`, and a right and a wrong answer to a small specification in the system message."""
    return _with_example(exact(problem, context))


@TEMPLATES.register("full")
def full(problem: Problem, context: Mapping[str, str]) -> list[Message]:
    """Both `table` and `examples`."""
    return _with_example(table(problem, context))


def _with_example(messages: list[Message]) -> list[Message]:
    system, *rest = messages
    return [{**system, "content": f"{system['content']}\n\n{EXAMPLE}"}, *rest]


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
