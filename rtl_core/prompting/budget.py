"""The token budget of a prompt: what is cut, in which order, and that it is told.

When a prompt is too long, context files are given up one after the other until it fits, least needed first: test benches
(`verif/`), other files, design files that the answer does not replace, documents, and last the files that the answer
replaces. The file at which the budget is met is cut after its last whole line that fits, with a marker; the ones before it are
dropped whole. A problem whose own text does not fit is refused: half a specification would teach guessing.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from rtl_core.errors import ProblemError
from rtl_core.prompting.chat import Chat
from rtl_core.prompting.messages import Message, build_messages
from rtl_core.types.problem import Problem

CUT_MARKER = "... (cut here: the file is longer than the prompt's budget)"


@dataclass(frozen=True)
class Prompt:
    """A prompt as the policy sees it: `tokens_P` are its P tokens; `notes` says in words what was cut or dropped."""

    problem_id: str
    messages: list[Message]
    tokens_P: list[int]
    notes: tuple[str, ...] = ()


def build_prompt(problem: Problem, chat: Chat, template: str, max_tokens: int) -> Prompt:
    """The prompt of a problem within `max_tokens`.

    Raises:
        ProblemError: even without any context file the prompt is too long; the message gives both numbers.
    """

    def render(context: dict[str, str]) -> tuple[list[Message], list[int]]:
        messages = build_messages(problem, template, context)
        return messages, chat.encode(messages)

    def lines_that_fit(rest: dict[str, str], path: str, lines: list[str]) -> int:
        """How many of a file's first lines fit behind the `rest` of the context; 0 if none."""

        def too_long(count: int) -> bool:
            return len(render(_with(rest, path, lines[:count], problem))[1]) > max_tokens

        return bisect_left(range(1, len(lines) + 1), True, key=too_long)

    context = dict(problem.context)
    messages, tokens_P = render(context)
    notes: list[str] = []
    for path in sorted(problem.context, key=lambda path: _need(path, problem)):
        if len(tokens_P) <= max_tokens:
            break
        text = context.pop(path)
        messages, tokens_P = render(context)
        lines = text.splitlines()
        if len(tokens_P) <= max_tokens and (keep := lines_that_fit(context, path, lines)):
            context = _with(context, path, lines[:keep], problem)
            messages, tokens_P = render(context)
            notes.append(f"{path}: cut to its first {keep} of {len(lines)} lines")
        else:
            notes.append(f"{path}: left out ({len(lines)} lines)")
    if len(tokens_P) > max_tokens:
        raise ProblemError(
            f"problem {problem.id}: its text alone takes {len(tokens_P)} tokens, the budget is {max_tokens}",
            "raise prompting.max_prompt_tokens or leave the problem out",
        )
    return Prompt(problem.id, messages, tokens_P, tuple(notes))


def _need(path: str, problem: Problem) -> tuple[int, str]:
    """Sort key: the least needed file first."""
    if path in problem.targets:
        return (4, path)
    if path.startswith("docs/"):
        return (3, path)
    if path.startswith("rtl/"):
        return (2, path)
    return (0 if path.startswith("verif/") else 1, path)


def _with(context: dict[str, str], path: str, lines: list[str], problem: Problem) -> dict[str, str]:
    """`context` plus the given lines of one file, in the problem's own order of files."""
    texts = {**context, path: "\n".join([*lines, CUT_MARKER])}
    return {name: texts[name] for name in problem.context if name in texts}
