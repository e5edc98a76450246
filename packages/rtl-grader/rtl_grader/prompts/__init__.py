"""Prompt templates: functions from a problem to chat messages, and the parts that they share. Each file of
this package registers some.

A template of your own is such a function in your own module; `prompting.template` names it `module:function`.

A problem's own system message (in CVDP's agentic set) describes shell commands and a patch format. It is
left out, since answers here are whole files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rtl_grader.registry import Registry
from rtl_grader.types.files import Files
from rtl_grader.types.problem import MASKED, Problem

Message = dict[str, str]
Messages = list[Message]
Template = Callable[[Problem, Files], Messages]
"""(problem, context files to show: path -> text) -> messages of `role` and `content`. `check --show`
prints its docstring."""

TEMPLATES: Registry[Template] = Registry("template", __name__, callable)

SYSTEM = """\
You are an expert in RTL design. You write synthesizable Verilog/SystemVerilog that follows a specification \
to the letter.
The specification outranks good style and habit. An automatic test bench connects to your module by name, so:
- module, port and parameter names, directions and widths are exactly those specified: none renamed, added or left out;
- reset name, polarity and kind (synchronous or asynchronous), bit order and priority order are exactly as specified;
- latency and the values at reset are exactly as specified.
Do not use $finish, $stop, file I/O, final blocks or tool-specific macros."""


MASKED_FORMAT = (
    f"Answer with the code in the place of `{MASKED}` alone, in one fenced code block (```verilog ... ```) and with "
    "no other code block."
)
"""Instruction on the form of an answer to a masked part."""


def answer_format(targets: Sequence[str]) -> str:
    """Instruction on the form of the answer (see extraction/response.py)."""
    if len(targets) == 1:
        return (
            f"Answer with the complete content of `{targets[0]}` in one fenced code block "
            "(```verilog ... ```) and with no other code block."
        )
    names = ", ".join(f"`{name}`" for name in targets)
    example = ", ".join(f'{{"{name}": "<complete file>"}}' for name in targets)
    return (
        f"Answer with the complete content of these files: {names}, "
        f'as JSON and nothing else: {{"code": [{example}]}}'
    )


def with_context(prompt: str, context: Files) -> str:
    """The prompt, followed by each context file in a fence under its name."""
    parts = [prompt]
    for path, text in context.items():
        parts.append(f"File `{path}`:\n```\n{text.rstrip()}\n```")
    return "\n\n".join(parts)


def build_messages(problem: Problem, template: str, context: Files | None = None) -> Messages:
    """Chat messages for a problem. `context` replaces its context files (after cutting); None: all of them."""
    return TEMPLATES.find(template)(problem, problem.context if context is None else context)
