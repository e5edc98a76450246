"""The reasons of a verdict, in few words: two that are known by their text, and what a failing step says."""

from __future__ import annotations

import re

from rtl_core.grading.executors.base import StepResult
from rtl_core.grading.limits import Budget, Limits

CONSTANT = "no output ever changed its value, though the inputs did; the harness cannot tell it from a constant"
"""The reason of an answer that its harness passes and that is refused all the same."""
HARNESS_FAILED = "the harness failed before it ran anything"
"""How the reason of an infrastructure error begins that no other answer and no second try can mend."""
MAX_REASONS = 12
MAX_CHARS = 400
_OVERRUNS = {
    "wall": "ran longer than {wall_s:g} s",
    "cpu": "used more than {cpu_s:.3g} s of CPU time",
    "asleep": "slept for more than {cpu_s:.3g} s",
    "memory": "used more than {memory_mb} MiB of memory",
    "processes": "started more than {processes} processes",
    "output": "wrote more than {output_mb} MiB of output",
}
_COMPILE_ERROR = re.compile(r"(?:error|sorry|syntax|give up|not found|unable|unknown)", re.I)
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


def overrun_reason(step: StepResult, limits: Limits, budget: Budget | None) -> str:
    """Which limit a step went over."""
    assert step.overrun is not None
    values, told = limits.model_dump(), ""
    if budget is not None and step.overrun in ("cpu", "asleep"):
        values, told = {"cpu_s": budget.cpu_s}, f"; {budget}"
    return f"{step.name} " + _OVERRUNS[step.overrun].format(**values) + told


def compile_reasons(text: str) -> tuple[str, ...]:
    """The lines of a compiler's output that tell of errors, with paths as in the workspace."""
    lines = [line.strip().replace("/code/", "") for line in _ANSI.sub("", text).splitlines() if line.strip()]
    telling = [line for line in lines if _COMPILE_ERROR.search(line)] or lines
    return _few(telling) or ("the compiler failed without a word",)


def test_reasons(step: StepResult) -> tuple[str, ...]:
    """Which tests of a step failed, with their messages; else what pytest or the program said last."""
    failed = [
        f"{test['name']}: {test['message'] or 'failed'}"
        for session in step.sessions
        for test in session.tests
        if test["status"] == "failed"
    ]
    lines = [line.rstrip() for line in _ANSI.sub("", step.output).splitlines() if line.strip()]
    if failed and all("Test failed with RANDOM_SEED" in line for line in failed):
        # cocotb 1 keeps the message out of its results; the log has it.
        failed += [line.strip() for line in lines if re.match(r"\s*\w*(?:Error|Exception|Failure): ", line)]
    if failed:
        return _few(failed)
    telling = [
        line.strip() for line in lines if re.match(r"E\s{2,}|FAILED |ERROR |\w*(?:Error|Exception): ", line.strip())
    ]
    return _few(telling or lines[-3:] or [f"{step.name} ended with exit code {step.exit_code}"])


def _few(lines: list[str]) -> tuple[str, ...]:
    """The first few different lines, cut to a readable length."""
    short = [" ".join(line.split())[:MAX_CHARS] for line in dict.fromkeys(lines)]
    if len(short) > MAX_REASONS:
        short = [*short[: MAX_REASONS - 1], f"and {len(short) - MAX_REASONS + 1} more"]
    return tuple(short)
