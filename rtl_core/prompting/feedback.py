"""What a model is told of an answer that failed: the grader's words.

Interface differences, compiler messages, names and messages of failing checks. Never a file or a line of the harness.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rtl_core.errors import InfrastructureError
from rtl_core.types.verdict import Outcome, Verdict

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
        raise InfrastructureError(f"grading itself failed: {'; '.join(verdict.reasons)}")
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
