"""Fit a prompt into its token budget, and note what was cut.

When a prompt is too long, context files are dropped one by one until it fits, least needed first: test
benches (`verif/`), other files, design files that the answer does not replace, documents, and finally the
files that the answer replaces. The last file to be dropped is instead cut after the last whole line that
fits, with a marker. A problem whose own text does not fit is an error: half a specification would teach
guessing.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from rtl_core.errors import ProblemError
from rtl_core.prompting.chat import Chat
from rtl_grader.prompts import Message, build_messages
from rtl_grader.types.problem import Problem

CUT_MARKER = "... (cut here: the file is longer than the prompt's budget)"


@dataclass(frozen=True)
class Prompt:
    """A prompt as the policy sees it: its P tokens, and notes about what was cut or dropped."""

    problem_id: str
    messages: list[Message]
    tokens_P: list[int]
    notes: tuple[str, ...] = ()


def build_prompt(problem: Problem, chat: Chat, template: str, max_tokens: int) -> Prompt:
    """Build the prompt of a problem within `max_tokens`.

    Raises:
        ProblemError: the prompt is too long even without context files; the message gives both numbers.
    """

    def render(context: dict[str, str]) -> tuple[list[Message], list[int]]:
        messages = build_messages(problem, template, context)
        return messages, chat.encode(messages)

    def lines_that_fit(rest: dict[str, str], path: str, lines: list[str]) -> int:
        """Number of a file's first lines that fit beside the `rest` of the context."""

        def too_long(count: int) -> bool:
            _, tokens_P = render(_with(rest, path, lines[:count], problem))
            return len(tokens_P) > max_tokens

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
    """Sort key that puts the least needed file first."""
    if path in problem.targets:
        return 4, path
    folder = "".join(path.partition("/")[:2])
    return {"docs/": 3, "rtl/": 2, "verif/": 0}.get(folder, 1), path


def _with(
    context: dict[str, str], path: str, lines: list[str], problem: Problem
) -> dict[str, str]:
    """Return `context` plus the given lines of a file, in the problem's order of files."""
    texts = {**context, path: "\n".join([*lines, CUT_MARKER])}
    return {name: texts[name] for name in problem.context if name in texts}
