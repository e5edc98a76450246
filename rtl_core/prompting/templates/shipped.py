"""The templates of the project: the problem's text alone, and with demands on the interface, restated or shown by example."""

from __future__ import annotations

from collections.abc import Mapping

from rtl_core.prompting.interface_table import EXAMPLE, interface_table
from rtl_core.prompting.messages import SYSTEM, answer_format, with_context
from rtl_core.prompting.templates import TEMPLATES, Message
from rtl_core.types.problem import Problem

BRIEF = (
    "Write the Verilog module exactly as specified: names, ports, widths, behaviour. Answer with one fenced code block."
)


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
