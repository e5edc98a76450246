"""A complete prompt template of a user's own."""

from collections.abc import Mapping

from rtl_grader.prompts import Message, answer_format, with_context
from rtl_grader.types.problem import Problem


def terse(problem: Problem, context: Mapping[str, str]) -> list[Message]:
    """The problem and the format of the answer, without a system message."""
    return [
        {
            "role": "user",
            "content": f"{with_context(problem.prompt, context)}\n\n{answer_format(problem.targets)}",
        }
    ]
