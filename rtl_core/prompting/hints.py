"""Feedback on a failed answer, and hints for a student that scores its own answers as its own teacher.

Feedback is made of the grader's words: interface differences, compiler messages, names and messages of
failing checks, never a file or a line of the harness. A hint shows more than the student saw when it
answered. Hints are for scoring alone: they are neither sampled from nor trained on, and no rollout's prompt
contains them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rtl_core.errors import InfrastructureError, PolicyError
from rtl_core.prompting.chat import Chat
from rtl_grader.extraction.thoughts import without_thoughts
from rtl_grader.prompts import Message
from rtl_grader.types.verdict import Outcome, Verdict

RIGHT = "This is correct. Give the whole answer again."
_HEAD = {
    Outcome.INTERFACE_MISMATCH: "The interface is not the specified one:",
    Outcome.COMPILE_FAILED: "It does not compile:",
    Outcome.TESTS_FAILED: "It fails {failed} of {total} checks:",
    Outcome.TIMEOUT: "It ran too long:",
    Outcome.NO_ANSWER: "No answer was found:",
    Outcome.REJECTED: "It was refused:",
    Outcome.NOT_TESTED: "Its tests were not run:",
}
_RECORD = re.compile(r" ?\[checks=[^\]]*\]")
"""Counts of a failing test for the history (docs/grading.md), not for the model."""
ASK = "Correct it. Give the whole answer again."


def after_right_answer(messages: Sequence[Message], answer: str) -> list[Message]:
    """Return the chat of a problem, a correct answer to it, and the request to repeat it."""
    return [*messages, _answer(answer), {"role": "user", "content": RIGHT}]


def after_verdict(
    messages: Sequence[Message], answer: str, verdict: Verdict, most_chars: int
) -> list[Message]:
    """Return the chat of a problem, a failed answer without its thoughts, the grader's feedback, and the
    request to correct it.

    Raises ValueError when the answer passed.
    """
    return [
        *messages,
        _answer(without_thoughts(answer).strip()),
        {"role": "user", "content": f"{feedback(verdict, most_chars)}\n{ASK}"},
    ]


def _answer(text: str) -> Message:
    # The empty thought keeps templates from looking for one in the answer, where `</think>` may be part of a string.
    return {"role": "assistant", "reasoning_content": "", "content": text}


def hinted(chat: Chat, messages: Sequence[Message], max_tokens: int | None) -> list[int] | None:
    """Tokens of such a chat; None if they exceed `max_tokens` or the chat template refuses the model's text."""
    try:
        tokens = chat.encode(messages)
    except PolicyError:
        return None
    return tokens if max_tokens is None or len(tokens) <= max_tokens else None


def feedback(verdict: Verdict, most_chars: int) -> str:
    """Return the grader's words about a failed answer, with at most `most_chars` characters of reasons, cut
    at line ends if possible.

    Raises:
        InfrastructureError: grading failed, so the verdict says nothing about the answer.
        ValueError: the answer passed.
    """
    if verdict.passed:
        raise ValueError("an answer that passed needs no further turn")
    if verdict.outcome is Outcome.INFRASTRUCTURE_ERROR:
        raise InfrastructureError(f"grading itself failed: {'; '.join(verdict.reasons)}")
    head = _HEAD[verdict.outcome].format(
        failed=verdict.tests_total - verdict.tests_passed, total=verdict.tests_total
    )
    reasons = (_RECORD.sub("", reason) for reason in verdict.reasons)
    lines = list(dict.fromkeys([*map(str, verdict.mismatches), *reasons]))
    return "\n".join([head, *_cut(lines, most_chars)])


def _cut(lines: Sequence[str], most_chars: int) -> list[str]:
    first: list[str] = []
    left = most_chars
    for line in lines:
        if len(line) > left:
            break
        first.append(line)
        left -= len(line)
    first = first or [line[:left] for line in lines[:1]]
    rest = len(lines) - len(first)
    return [*first, f"and {rest} more"] if rest else first
