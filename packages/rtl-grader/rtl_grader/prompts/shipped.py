"""The project's templates: the problem's text alone, or with demands on the interface, restated or shown by example.

A table reveals nothing beyond the problem's own text: it lists only names that occur there, and a width
only if its number does. So it does not make the problem easier for a careful reader.
"""

from __future__ import annotations

import re

from rtl_grader.errors import ConfigError
from rtl_grader.prompts import (
    MASKED_FORMAT,
    SYSTEM,
    TEMPLATES,
    Messages,
    answer_format,
    with_context,
)
from rtl_grader.types.files import Files
from rtl_grader.types.problem import MASKED, Port, Problem

BRIEF = (
    "Write the Verilog module exactly as specified: names, ports, widths, behaviour. "
    "Answer with one fenced code block."
)

WINDOW = (
    f"Write the Verilog code that stands in the place of `{MASKED}`, in one fenced code block."
)
BEFORE, AFTER = 300, 200
"""Most characters before and after a masked part that `window` shows."""

EXAMPLE = """\
Example. Specification: "Module `pulse_cnt`: counts the cycles in which `tick_i` is high. Output `total_o`, 5 bits. \
Clock `clk_i`. Reset `clear`, synchronous, active high."
Right: `module pulse_cnt(input clk_i, input clear, input tick_i, output reg [4:0] total_o);` with \
`always @(posedge clk_i) if (clear) ...`
Wrong, although a good counter: `module counter(input clk, input rst_n, input en, output reg [7:0] count);` with \
`always @(posedge clk or negedge rst_n)`. Module, ports, width, and the reset's name, polarity and kind are not the \
specified ones."""


@TEMPLATES.register("bare")
def bare(problem: Problem, context: Files) -> Messages:
    """The problem's own text alone, for models that were trained on such prompts."""
    return [{"role": "user", "content": with_context(problem.prompt, context)}]


@TEMPLATES.register("brief")
def brief(problem: Problem, context: Files) -> Messages:
    """A sentence that demands the exact interface, and the problem: for small models, slow on long prompts."""
    return [{"role": "system", "content": BRIEF}, *bare(problem, context)]


@TEMPLATES.register("window")
def window(problem: Problem, context: Files) -> Messages:
    """A sentence, and the lines around a masked part, at most 300 characters before and 200 after it: for small
    models. Raises ConfigError if nothing is masked."""
    if not problem.frame:
        raise ConfigError(
            f"template window: nothing is masked in {problem.id}",
            f"give problems with `{MASKED}`, such as those of the source `rtl`",
        )
    (frame,) = problem.frame.values()
    before, _, after = frame.partition(MASKED)
    if len(before) > BEFORE:
        before = before[-BEFORE:]
        _, _, whole_lines = before.partition("\n")
        before = whole_lines or before
    if len(after) > AFTER:
        after = after[:AFTER]
        whole_lines, _, _ = after.rpartition("\n")
        after = whole_lines or after
    code = f"{before}{MASKED}{after}".strip("\n")
    return [{"role": "system", "content": WINDOW}, {"role": "user", "content": code}]


@TEMPLATES.register("exact")
def exact(problem: Problem, context: Files) -> Messages:
    """A system message that demands the exact interface, the problem, and the answer's format."""
    return _exact(problem, context)


@TEMPLATES.register("table")
def table(problem: Problem, context: Files) -> Messages:
    """Like `exact`, with the interface restated as a table before the format."""
    return _exact(problem, context, interface_table(problem))


@TEMPLATES.register("examples")
def examples(problem: Problem, context: Files) -> Messages:
    """Like `exact`, with a right and a wrong answer to a small specification in the system message."""
    return _with_example(exact(problem, context))


@TEMPLATES.register("full")
def full(problem: Problem, context: Files) -> Messages:
    """Both `table` and `examples`."""
    return _with_example(table(problem, context))


def _exact(problem: Problem, context: Files, demands: str | None = None) -> Messages:
    question = with_context(problem.prompt, context)
    form = MASKED_FORMAT if problem.frame else answer_format(problem.targets)
    parts = [question, demands, form]
    user = "\n\n".join(filter(None, parts))
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": user}]


def _with_example(messages: Messages) -> Messages:
    system, *others = messages
    content = f"{system['content']}\n\n{EXAMPLE}"
    return [{**system, "content": content}, *others]


def interface_table(problem: Problem) -> str | None:
    """The interface as a Markdown table, or None if the problem's text contains no part of it."""
    interface = problem.interface
    if interface is None:
        return None
    text = "\n".join([problem.prompt, *problem.context.values()])
    words = set(re.findall(r"[A-Za-z_]\w*", text))
    numbers = set(map(int, re.findall(r"(?<![\w.])\d{1,6}(?![\w.])", text)))
    ports = [port for port in interface.ports if port.name in words]
    if not ports:
        return None
    rows = [_row(port, numbers) for port in ports]
    table = "\n".join(["| port | direction | width |", "|---|---|---|", *rows])
    title = "The interface once more"
    if interface.module in words:
        title += f". Module `{interface.module}`"
    if len(ports) < len(interface.ports):
        title += " (as far as it can be read from the specification)"
    parameters = ", ".join(f"`{p.name}`" for p in interface.parameters if p.name in words)
    note = f"\n\nParameters: {parameters}." if parameters else ""
    return f"{title}:\n\n{table}{note}"


def _row(port: Port, numbers: set[int]) -> str:
    width = "as specified"
    if port.width and (port.width == 1 or not numbers.isdisjoint((port.width, port.width - 1))):
        width = str(port.width)
    direction = port.direction or "as specified"
    return f"| `{port.name}` | {direction} | {width} |"
