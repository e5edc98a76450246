"""The prompt of a second (third) turn: the problem, the answer before, and what compiler and tests said of it.

Only the grader's words go in: interface differences, compiler messages, names and messages of failing checks. Never a file or a
line of the harness.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from rtl_core.errors import InfrastructureError, PolicyError
from rtl_core.prompting.budget import Prompt
from rtl_core.prompting.chat import Chat
from rtl_core.prompting.messages import Message
from rtl_core.prompting.thoughts import without_thoughts
from rtl_core.types.problem import Interface, Problem
from rtl_core.types.verdict import MismatchKind, Outcome, Verdict

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
"""How a test was wrong, counted for the history (docs/grading.md): no word for the model."""
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
    reasons = (_RECORD.sub("", reason) for reason in verdict.reasons)
    lines = list(dict.fromkeys([*map(str, verdict.mismatches), *reasons]))
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


def terse_feedback(verdict: Verdict, demanded: Interface | None) -> str:
    """The same in the fewest words: each wrong part of the interface as it is demanded, or the names of the failing checks.

    Raises ValueError when the answer passed.
    """
    if verdict.passed:
        raise ValueError("an answer that passed needs no further turn")
    ports = {port.name: port for port in demanded.ports} if demanded else {}
    words = []
    for mismatch in verdict.mismatches:
        port = ports.get(mismatch.name)
        if mismatch.kind is MismatchKind.WRONG_MODULE:
            words.append(f"Module {mismatch.expected}.")
        elif port is not None:
            width = f", {port.width} bits" if port.width is not None and port.width > 1 else ""
            words.append(f"{(port.direction or 'port').capitalize()} {port.name}{width}.")
        elif mismatch.kind is MismatchKind.MISSING_PARAMETER or mismatch.kind is MismatchKind.WRONG_PARAMETER:
            words.append(f"Parameter {mismatch.name}, default {mismatch.expected}.")
    checks = [reason.partition(":")[0] for reason in verdict.reasons] if not words else []
    return " ".join([*words, *(f"Check {name}." for name in checks)])


def chat_messages(messages: Sequence[Message], answer: str, said: str) -> list[Message]:
    """The chat of a further turn after `messages`, the chat of the first. Of the answer its thoughts are left out, as every chat
    template does with turns that are over."""
    # The empty thought, told apart, keeps templates from looking for one in the answer, where `</think>` may stand in a string.
    said_before = {"role": "assistant", "reasoning_content": "", "content": without_thoughts(answer).strip()}
    return [*messages, said_before, {"role": "user", "content": f"{said}\n{ASK}"}]


def terse_messages(messages: Sequence[Message], said: str) -> list[Message]:
    """The first turn's chat with what was said behind the problem, in the same message."""
    *before, last = messages
    return [*before, {**last, "content": f"{last['content']} {said}"}]


def build_refinement(
    problem: Problem,
    first: Prompt,
    answer: str,
    verdict: Verdict,
    chat: Chat,
    *,
    style: Literal["chat", "terse"],
    most_chars: int,
    max_tokens: int,
) -> Prompt | None:
    """The prompt of a further turn within `max_tokens`; None where it does not fit, or where the chat template refuses what the model
    wrote (gpt-oss's does if that holds marks of channels): that answer is not followed up.

    The turns between are left out: the last answer and its verdict are what there is to mend.
    """
    if style == "terse":
        messages = terse_messages(first.messages, terse_feedback(verdict, problem.interface))
    else:
        messages = chat_messages(first.messages, answer, feedback(verdict, most_chars))
    try:
        tokens_P = chat.encode(messages)
    except PolicyError:
        return None
    return Prompt(first.problem_id, messages, tokens_P) if len(tokens_P) <= max_tokens else None
