"""From a problem to chat messages.

Templates:

- `bare`: the problem's own text as the user's message, nothing else. For models that were trained on such prompts.
- `exact`: a system message that puts the specification above habit, the problem's text, its context files, and the format in
  which the answer is read.
- `table`: `exact`, and the interface restated as a table before the format (interface_table.py).
- `examples`: `exact`, and a right and a wrong answer to a small specification in the system message.
- `full`: both.

A problem's own system message (CVDP's agentic one) describes shell commands and a patch format. Answers here are single-shot
whole files, so that message is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rtl_core.prompting.interface_table import EXAMPLE, interface_table
from rtl_core.types.problem import Problem

Message = dict[str, str]

SYSTEM = """\
You are an expert in RTL design. You write synthesizable Verilog/SystemVerilog that follows a specification to the letter.
The specification outranks good style and habit. An automatic test bench connects to your module by name, so:
- module, port and parameter names, directions and widths are exactly those specified: none renamed, added or left out;
- reset name, polarity and kind (synchronous or asynchronous), bit order and priority order are exactly as specified;
- latency and the values at reset are exactly as specified.
Do not use $finish, $stop, file I/O, final blocks or tool-specific macros."""


def answer_format(targets: Sequence[str]) -> str:
    """The instruction that says in which form the answer is read (see extraction.py)."""
    if len(targets) == 1:
        return (
            f"Answer with the complete content of `{targets[0]}` in one fenced code block (```verilog ... ```) and with no "
            "other code block."
        )
    names = ", ".join(f"`{name}`" for name in targets)
    example = ", ".join(f'{{"{name}": "<complete file>"}}' for name in targets)
    return (
        f'Answer with the complete content of these files: {names}, as JSON and nothing else: {{"code": [{example}]}}'
    )


def _bare(problem: Problem, context: Mapping[str, str]) -> list[Message]:
    return [{"role": "user", "content": _with_context(problem.prompt, context)}]


def _exact(problem: Problem, context: Mapping[str, str]) -> list[Message]:
    user = f"{_with_context(problem.prompt, context)}\n\n{answer_format(problem.targets)}"
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": user}]


def _table(problem: Problem, context: Mapping[str, str]) -> list[Message]:
    parts = [_with_context(problem.prompt, context), interface_table(problem), answer_format(problem.targets)]
    user = "\n\n".join(part for part in parts if part)
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": user}]


def _examples(problem: Problem, context: Mapping[str, str]) -> list[Message]:
    return _with_example(_exact(problem, context))


def _full(problem: Problem, context: Mapping[str, str]) -> list[Message]:
    return _with_example(_table(problem, context))


def _with_example(messages: list[Message]) -> list[Message]:
    system, *rest = messages
    return [{**system, "content": f"{system['content']}\n\n{EXAMPLE}"}, *rest]


def _with_context(prompt: str, context: Mapping[str, str]) -> str:
    parts = [prompt]
    parts += [f"File `{path}`:\n```\n{text.rstrip()}\n```" for path, text in context.items()]
    return "\n\n".join(parts)


TEMPLATES: dict[str, Callable[[Problem, Mapping[str, str]], list[Message]]] = {
    "bare": _bare,
    "exact": _exact,
    "table": _table,
    "examples": _examples,
    "full": _full,
}
"""Every template. A new one is a function here and its name in config/models.py."""


def build_messages(problem: Problem, template: str, context: Mapping[str, str] | None = None) -> list[Message]:
    """Chat messages for a problem; `context` replaces its context files (after cutting), None means all of them."""
    return TEMPLATES[template](problem, problem.context if context is None else context)
