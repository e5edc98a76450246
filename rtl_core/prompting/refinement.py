"""The prompt of a second (third) turn: the problem, the answer before, and what compiler and tests said of it.

Only the grader's words go in: interface differences, compiler messages, names and messages of failing checks. Never a file or a
line of the harness.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rtl_core.errors import InfrastructureError
from rtl_core.grading.verdict import Outcome, Verdict
from rtl_core.prompting.budget import Prompt, encode_messages
from rtl_core.prompting.messages import Message

_HEAD = {
    Outcome.INTERFACE_MISMATCH: "The interface is not the specified one:",
    Outcome.COMPILE_FAILED: "It does not compile:",
    Outcome.TESTS_FAILED: "It fails {failed} of {total} checks:",
    Outcome.TIMEOUT: "It ran too long:",
    Outcome.NO_ANSWER: "No answer was found:",
    Outcome.REJECTED: "It was refused:",
}
ASK = "Correct it. Give the whole answer again."


def feedback(verdict: Verdict, most_chars: int) -> str:
    """What the grader says of a failed answer, at most `most_chars` characters of reasons, cut at a line's end where possible.

    Raises:
        InfrastructureError: the verdict says nothing about the answer.
        ValueError: the answer passed.
    """
    if verdict.passed:
        raise ValueError("an answer that passed needs no further turn")
    if verdict.outcome is Outcome.INFRASTRUCTURE_ERROR:
        raise InfrastructureError("grading itself failed, so there is nothing to tell of the answer")
    head = _HEAD[verdict.outcome].format(failed=verdict.tests_total - verdict.tests_passed, total=verdict.tests_total)
    lines = [str(mismatch) for mismatch in verdict.mismatches] or list(verdict.reasons)
    return "\n".join([head, *_cut(lines, most_chars)])


def _cut(lines: Sequence[str], most_chars: int) -> list[str]:
    kept: list[str] = []
    left = most_chars
    for number, line in enumerate(lines):
        if len(line) > left:
            if not kept:
                kept.append(line[:left])
            rest = len(lines) - number - (len(kept) > number)
            return [*kept, f"and {rest} more"] if rest else kept
        kept.append(line)
        left -= len(line)
    return kept


def refine_messages(messages: Sequence[Message], answer: str | None, said: str) -> list[Message]:
    """The chat of a further turn after `messages`, the chat of the first: the answer (None leaves it out) and what was said.

    Without the answer, what was said follows the problem in one user message, for models that know a single turn only.
    """
    if answer is None:
        *before, last = messages
        return [*before, {**last, "content": f"{last['content']}\n{said}"}]
    return [
        *messages,
        {"role": "assistant", "content": answer},
        {"role": "user", "content": f"{said}\n{ASK}"},
    ]


def build_refinement(
    first: Prompt,
    answer: str,
    verdict: Verdict,
    tokenizer: Any,
    *,
    show_answer: bool,
    most_chars: int,
    max_tokens: int,
) -> Prompt | None:
    """The prompt of a further turn within `max_tokens`; without the answer where it would not fit, None where nothing fits.

    The turns between are left out: the last answer and its verdict are what there is to mend.
    """
    said = feedback(verdict, most_chars)
    for shown in [answer, None] if show_answer else [None]:
        messages = refine_messages(first.messages, shown, said)
        tokens_P = encode_messages(tokenizer, messages)
        if len(tokens_P) <= max_tokens:
            notes = () if shown is not None or not show_answer else ("the answer before: left out",)
            return Prompt(first.problem_id, messages, tokens_P, notes)
    return None
