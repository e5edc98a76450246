"""Evaluates the results of a harness' services and words a verdict's reasons. Pure functions. A session is one simulation
(executors/base.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rtl_core.grading.executors.base import StepResult
from rtl_core.grading.limits import Budget, Limits
from rtl_core.grading.requirements import uses_cocotb
from rtl_core.types.verdict import InterfaceMismatch, MismatchKind

_SETTING = re.compile(r"-P\w+\.(\w+)=(.*)", re.S)
_NOT_TAKEN = re.compile(r"error: (?:parameter `(\w+)` not found in|Cannot override localparam `(\w+)` in)")
"""Errors of Icarus 13 about a `-P` option; earlier versions only warn."""
_NUMBER = re.compile(r"-?\d{1,18}")
ENOUGH_CHANGES = 16
"""With fewer input changes, constant outputs prove nothing."""
CONSTANT = "no output ever changed its value, though the inputs did; the harness cannot tell it from a constant"
"""The reason for failing an answer that passes its harness."""
NO_TEST = "the harness passed although it ran no test"
"""The same."""
FORGEABLE = (
    "a script of the harness judges a Verilog test bench by what is printed and how it ends, which a design can forge"
)
"""Prefix of the reason of the infrastructure error with which such a harness is refused."""
HARNESS_FAILED = "the harness failed before it ran anything"
"""Prefix of the reason of an infrastructure error that neither another answer nor a retry can fix."""
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
_PLACE = re.compile(r"^\S+:\d+:")
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


def has_failing_test(result: StepResult) -> bool:
    """Whether a test of this service failed; a service may fail without one."""
    return any(test["status"] == "failed" for session in result.sessions for test in session.tests)


def count_tests(results: Sequence[StepResult]) -> tuple[int, int]:
    """(passed, all) tests that were not skipped.

    A service that passed without a simulation, or failed without a failing test, counts as one test.
    """
    run = [test for result in results for session in result.sessions for test in session.tests]
    passed = sum(test["status"] == "passed" for test in run)
    total = sum(test["status"] != "skipped" for test in run)
    passed_alone = sum(result.exit_code == 0 and not result.sessions for result in results)
    failed_alone = sum(result.exit_code != 0 and not has_failing_test(result) for result in results)
    return passed + passed_alone, total + passed_alone + failed_alone


def refusals(results: Sequence[StepResult]) -> tuple[str, ...]:
    """Distinct reasons why compiled programs were not simulated."""
    return tuple(dict.fromkeys(reason for result in results for reason in result.refused))


def cheating(results: Sequence[StepResult], harness: Mapping[str, str]) -> tuple[str, ...]:
    """Evidence that the results are not the simulators' own; empty if there is none.

    A changed results file counts as evidence only if the harness passed and the simulation itself did not report success.
    Any other change gains nothing, since tests are counted from the simulators' reports; and a harness that runs another
    simulation on the same file changes it, too.
    """
    passed = all(result.exit_code == 0 for result in results)
    for result in results:
        for session in result.sessions:
            succeeded = session.complete and all(test["status"] != "failed" for test in session.tests)
            if passed and session.forged and not succeeded:
                return (f"{result.name}: the results file is not the one that cocotb wrote",)
            if any(not test["file"].startswith(("/src/", "/code/src/")) for test in session.tests):
                return (f"{result.name}: a test did not come from the harness",)
    completed = any(session.complete for result in results for session in result.sessions)
    unfinished = (uses_cocotb(harness) and not completed) or not all(result.is_attested for result in results)
    if passed and unfinished:
        return ("the harness passed although a simulation did not bring its tests to an end",)
    return ()


def changed_parameters(
    results: Sequence[StepResult], demanded: Callable[[Mapping[str, int]], Mapping[str, Sequence[int]]]
) -> tuple[InterfaceMismatch, ...]:
    """Parameters that the harness sets in a build or reads back, and whose value in the design is wrong.

    `demanded` maps a build's settings to the right values of the parameters that are only read (interface_check.py).
    """
    found: dict[tuple[str, str, str], None] = {}
    for build in (build for result in results for build in result.builds if build["parameters"]):
        settings = _settings(build["argv"])
        numbers = {name: int(value) for name, value in settings.items() if _NUMBER.fullmatch(value)}
        right = demanded(numbers) if numbers else {}
        for name, wanted, got in build["parameters"]:
            values = [] if name in settings else [str(value) for value in right.get(name, ())]
            if got not in values:
                found[name, values[0] if values else wanted, got] = None
    return tuple(
        InterfaceMismatch(kind=MismatchKind.WRONG_PARAMETER, name=name, expected=wanted, got=got)
        for name, wanted, got in found
    )


def refused_parameters(build: Mapping[str, Any]) -> tuple[InterfaceMismatch, ...]:
    """Parameters that a build of the harness set and the compiler refused because the design lacks them."""
    settings = _settings(build["argv"])
    names = dict.fromkeys(first or second for first, second in _NOT_TAKEN.findall(build["output"]))
    return tuple(
        InterfaceMismatch(kind=MismatchKind.WRONG_PARAMETER, name=name, expected=settings.get(name), got="none")
        for name in names
    )


def _settings(argv: Sequence[str]) -> dict[str, str]:
    """Name -> text of parameters that an Icarus command sets by `-Ptop.NAME=VALUE`."""
    found = (_SETTING.fullmatch(word) for word in argv)
    return {match[1]: match[2] for match in found if match}


def never_changed(results: Sequence[StepResult]) -> bool:
    """Whether no watched output changed in any simulation although the inputs changed often enough.

    An honest design changes some output under any useful harness; a constant passes some weak harnesses.
    """
    sessions = [session for result in results for session in result.sessions]
    changes = sum(session.changes for session in sessions)
    still = changes >= ENOUGH_CHANGES and not any(session.moved for session in sessions)
    return still or any(result.still for result in results)


def pacer(results: Sequence[StepResult]) -> str:
    """The first simulation's input that changed often, see `Session.pacer`; empty if no simulation had one."""
    return next((session.pacer for result in results for session in result.sessions if session.pacer), "")


def overrun_reason(step: StepResult, limits: Limits, budget: Budget | None) -> str:
    """Description of the limit that a step exceeded."""
    assert step.overrun is not None
    values, source = limits.model_dump(), ""
    if budget is not None and step.overrun in ("cpu", "asleep"):
        values, source = {"cpu_s": budget.cpu_s}, f"; {budget}"
    return f"{step.name} " + _OVERRUNS[step.overrun].format(**values) + source


def compile_reasons(text: str) -> tuple[str, ...]:
    """Error lines of a compiler's output, with paths relative to the workspace."""
    lines = [line.strip().replace("/code/", "") for line in _ANSI.sub("", text).splitlines() if line.strip()]
    # A warning about a file or port named error_x is no error.
    telling = [
        line for line in lines if "warning:" not in line and _COMPILE_ERROR.search(_PLACE.sub("", line))
    ] or lines
    return _shortened(telling) or ("the compiler failed without a word",)


def test_reasons(step: StepResult) -> tuple[str, ...]:
    """The failed tests of a step with their messages; else the last output of pytest or the program."""
    failed = [
        f"{test['name']}: {test['message'] or 'failed'}"
        for session in step.sessions
        for test in session.tests
        if test["status"] == "failed"
    ]
    lines = [line.rstrip() for line in _ANSI.sub("", step.output).splitlines() if line.strip()]
    if failed and all("Test failed with RANDOM_SEED" in line for line in failed):
        # cocotb 1 writes the message only to the log.
        failed += [line.strip() for line in lines if re.match(r"\s*\w*(?:Error|Exception|Failure): ", line)]
    if failed:
        return _shortened(failed)
    telling = [
        line.strip() for line in lines if re.match(r"E\s{2,}|FAILED |ERROR |\w*(?:Error|Exception): ", line.strip())
    ]
    return _shortened(telling or lines[-3:] or [f"{step.name} ended with exit code {step.exit_code}"])


def _shortened(lines: list[str]) -> tuple[str, ...]:
    """The first few distinct lines, cut to a readable length."""
    short = [" ".join(line.split())[:MAX_CHARS] for line in dict.fromkeys(lines)]
    if len(short) > MAX_REASONS:
        short = [*short[: MAX_REASONS - 1], f"and {len(short) - MAX_REASONS + 1} more"]
    return tuple(short)
