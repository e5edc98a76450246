"""Evaluates the results of a harness' services and words a verdict's reasons. Pure functions. A session is
one simulation (executors/base.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from rtl_grader.grading.executors.base import Message, Session, StepResult
from rtl_grader.grading.interface_check import Mismatches, in_bits, mismatch_of
from rtl_grader.grading.limits import Budget, Limits
from rtl_grader.grading.requirements import uses_cocotb
from rtl_grader.types.files import Files
from rtl_grader.types.problem import Problem
from rtl_grader.types.verdict import MismatchKind, shortened

Results = Sequence[StepResult]
"""Results of a harness' services, in order."""
Reasons = tuple[str, ...]
"""Reasons of a verdict, one sentence each."""

_SETTING = re.compile(r"-P\w+\.(\w+)=(.*)", re.S)
_NOT_TAKEN = re.compile(
    r"error: (?:parameter `(\w+)` not found in|Cannot override localparam `(\w+)` in)"
)
"""Errors of Icarus 13 about a `-P` option; earlier versions only warn."""
_NUMBER = re.compile(r"-?\d{1,18}")
_TEST_FILES = ("/src/", "/code/src/", "library:")
"""Where the files of tests are: in the harness, or in a library of the sandbox's Python (inside/lib/witness.py)."""
ENOUGH_CHANGES = 16
"""With fewer input changes, constant outputs prove nothing."""
CONSTANT = "no output ever changed its value, though the inputs did; the harness cannot tell it from a constant"
"""The reason for failing an answer that passes its harness."""
NO_TEST = "the harness passed although it ran no test"
"""The reason for failing an answer when the harness passes it without a test."""
FORGEABLE = (
    "a script of the harness judges a Verilog test bench by what is printed and how it ends, "
    "which a design can forge"
)
"""Prefix of the reason of the infrastructure error with which such a harness is refused."""
HARNESS_FAILED = "the harness fails by itself"
"""Prefix of the reason of an infrastructure error that neither another answer nor a retry can fix."""
TOO_OLD = (
    "cannot read valid SystemVerilog (slang can); newer tools: rtl-grader toolchain install"
)
"""End of the first reason when a tool does not understand an answer that is right by its form."""
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
_NOISE = re.compile(r"\x1b\[[0-9;]*m|^[ \t]*NoneType: None$| at 0x[0-9a-f]+(?=>)", re.M)
"""Colours, what Python writes in place of a traceback when there is no exception, and addresses of objects."""
_CONTEXT = re.compile(r"Time: \d+\s+Scope: |Aborting\.\.\.|%Error: .*Verilog \$stop")
"""What Icarus and Verilator print after the message of `$error` and `$fatal`."""
_OF_BENCH = ("the test bench ", "the simulation was ended ")
"""Begin of the line in which the runner of a Verilog bench says why an answer fails, after what was printed."""
_TRACEBACK = re.compile(
    r"^(.*)Traceback \(most recent call last\):\n(?:\1[ \t].*\n){0,300}\1(\S.*)$"
    r"(?!\n\s*(?:During handling of|The above exception))",
    re.M,
)
"""A traceback; the second group is the exception. Of exceptions that raised each other only the last one matches."""
_ERROR_LINE = re.compile(
    r"E\s{2,}|FAILED |ERROR |(?:[A-Za-z_]\w*\.)*\w*(?:Error|Exception|Failure|Expired)(?::\s|$)"
)
_UNREADABLE = re.compile(
    r"syntax error|sorry:|Unsupported:|not (?:yet )?supported|Assertion `|failed assertion"
    r"|word index\?|No function named|must be input ports",
    re.I,
)
"""Complaints of Icarus and Verilator about text that they do not understand: wrong text, or text that is too new."""
_SURROUNDINGS = re.compile(
    r"\b(?:(?:Import|ModuleNotFound|FileNotFound)Error\b|KeyError: [\"'])|Unable to accurately represent"
)
"""Errors of Python that come from missing modules, files and settings, and times below the precision."""
_NAMES_ERROR = re.compile(
    r"^(?!FAILED|ERROR|\d+ of \d+ tests|.*(?:Exit|abnormally|CalledProcess|_SEED=))"
)
"""Reasons that say more than that something failed."""
_BEFORE_READING = re.compile(
    _NAMES_ERROR.pattern
    + r"(?!.*(?:Assertion|TestFailure|Timeout|no child object|out of range))"
)
"""Errors that a design cannot cause before a test reads it; a port that it lacks is one."""
_UNOPENED = re.compile(r"\$readmem[bh]: Unable to open \S+")


def count_tests(results: Results) -> tuple[int, int]:
    """(passed, all) tests that were not skipped.

    A service that passed without a simulation, or failed without a failing test, counts as one test.
    """
    passed = total = 0
    for result in results:
        statuses = [test["status"] for test in result.tests if test["status"] != "skipped"]
        if result.exit_code == 0 and not result.sessions:
            statuses.append("passed")
        elif result.exit_code != 0 and not result.failed_tests:
            statuses.append("failed")
        passed += statuses.count("passed")
        total += len(statuses)
    return passed, total


def refusals(results: Results) -> Reasons:
    """Distinct reasons why compiled programs were not simulated."""
    return tuple(dict.fromkeys(reason for result in results for reason in result.refused))


def cheating(results: Results, harness: Files) -> Reasons:
    """Evidence that the results are not the simulators' own; empty if there is none.

    A changed results file counts as evidence only if the harness passed and the simulation itself did not
    report success. Any other change gains nothing, since tests are counted from the simulators' reports;
    and a harness that runs another simulation on the same file changes it, too.
    """
    harness_passed = all(result.exit_code == 0 for result in results)
    for result in results:
        for session in result.sessions:
            failures = [test for test in session.tests if test["status"] == "failed"]
            succeeded = session.complete and not failures
            if harness_passed and session.forged and not succeeded:
                return (f"{result.name}: the results file is not the one that cocotb wrote",)
            if any(not test["file"].startswith(_TEST_FILES) for test in session.tests):
                return (f"{result.name}: a test did not come from the harness",)
    is_attested = all(result.is_attested for result in results)
    if uses_cocotb(harness):
        is_attested &= any(session.complete for session in _sessions(results))
    if harness_passed and not is_attested:
        return ("the harness passed although a simulation did not bring its tests to an end",)
    return ()


def _sessions(results: Results) -> list[Session]:
    return [session for result in results for session in result.sessions]


def parameter_mismatches(
    results: Results,
    demanded_values: Callable[[Mapping[str, int]], Mapping[str, Sequence[int]]],
) -> Mismatches:
    """Parameters that the harness sets in a build or reads back, and whose value in the design is wrong;
    and ports that are narrower than demanded.

    `demanded_values` maps a build's settings to the right values of the parameters that are only read and to the
    ports' widths (interface_check.py).
    """
    mismatches = []
    for build in (
        build for result in results for build in result.builds if build["parameters"]
    ):
        settings = _settings(build["argv"])
        numbers = {
            name: int(text) for name, text in settings.items() if _NUMBER.fullmatch(text)
        }
        right_values = demanded_values(numbers)
        for name, setting, got in build["parameters"]:
            right: list[str] = []
            if name not in settings:
                right += map(str, right_values.get(name, ()))
            expected, *_ = [*right, setting]
            if setting and got not in right:
                kind = MismatchKind.WRONG_PARAMETER
                mismatches.append(mismatch_of(kind, name, expected, got))
            elif not setting and right and int(got) < int(expected):
                widths = in_bits(expected), in_bits(got)
                mismatches.append(mismatch_of(MismatchKind.WRONG_WIDTH, name, *widths))
    return tuple(dict.fromkeys(mismatches))


def refused_parameters(build: Message) -> Mismatches:
    """Parameters that a build of the harness set and the compiler refused because the design lacks them."""
    settings = _settings(build["argv"])
    errors = _NOT_TAKEN.findall(build["output"])
    names = dict.fromkeys(first or second for first, second in errors)
    kind = MismatchKind.WRONG_PARAMETER
    return tuple(mismatch_of(kind, name, settings.get(name), "none") for name in names)


def _settings(argv: Sequence[str]) -> dict[str, str]:
    """Name -> text of parameters that an Icarus command sets by `-Ptop.NAME=VALUE`."""
    matches = filter(None, map(_SETTING.fullmatch, argv))
    return {match[1]: match[2] for match in matches}


def never_changed(results: Results) -> bool:
    """Whether no watched output changed in any simulation although the inputs changed often enough.

    An honest design changes some output under any useful harness; a constant passes some weak harnesses.
    """
    if any(result.still for result in results):
        return True
    sessions = _sessions(results)
    changes = sum(session.changes for session in sessions)
    return changes >= ENOUGH_CHANGES and not any(session.moved for session in sessions)


def pacer(results: Results) -> str:
    """The first simulation's input that changed often, see `Session.pacer`; empty if no simulation had one."""
    return next((session.pacer for session in _sessions(results) if session.pacer), "")


def overrun_reason(step: StepResult, limits: Limits, budget: Budget | None) -> str:
    """Description of the limit that a step exceeded."""
    assert step.overrun is not None
    values = limits.model_dump()
    origin = ""
    if budget is not None and step.overrun in ("cpu", "asleep"):
        values = {"cpu_s": budget.cpu_s}
        origin = f"; {budget}"
    excess = _OVERRUNS[step.overrun].format(**values)
    return f"{step.name} {excess}{origin}"


def compile_reasons(text: str) -> Reasons:
    """Error lines of a compiler's output, with paths relative to the workspace."""
    lines = _lines(text)
    # A warning about a file or port named error_x is no error.
    others = [line for line in lines if "warning:" not in line]
    errors = [line for line in others if _COMPILE_ERROR.search(_PLACE.sub("", line))]
    return _listed(errors or lines) or ("the compiler failed without a word",)


def is_unreadable(output: str) -> bool:
    """Whether a compiler says that it does not understand a text."""
    return bool(_UNREADABLE.search(output))


def test_reasons(step: StepResult) -> Reasons:
    """The failed tests of a step with their messages; else lines of its output: those that name errors, or the last."""
    lines = _lines(step.output)
    text = _NOISE.sub("", step.output)
    exceptions = [exception for _, exception in _TRACEBACK.findall(text)]
    failures = []
    for test in step.failed_tests:
        message = test["message"] or "failed"
        failures.append(f"{test['name']}: {message}")
    if not failures:
        reasons = [*exceptions, *filter(_ERROR_LINE.match, lines)]
        without_words = f"{step.name} ended with exit code {step.exit_code}"
        last = [line for line in lines[-3:] if not _CONTEXT.match(line)]
        last.sort(key=lambda line: not line.startswith(_OF_BENCH))
        return _listed(reasons or last or [without_words])
    # cocotb 1 writes the message only to the log.
    if "Test failed with RANDOM_SEED" not in failures[0]:
        exceptions = []
    return _listed([*_UNOPENED.findall(text), *exceptions, *failures])


def own_faults(results: Results, problem: Problem) -> list[str]:
    """Reasons of failing services that are the harness' own fault if another design causes the same ones.

    If the other design is the golden answer, all are that name an error. Else only those are that no values
    of a design cause: what is missing around the harness, and with cocotb tests anything before a simulator
    starts and errors before the failing tests let time pass.
    """
    faults: list[str] = []
    cocotb = uses_cocotb(problem.harness)
    nothing_ran = cocotb and all(result.reach < 2 for result in results)
    of_harness = _SURROUNDINGS
    if problem.golden:
        of_harness = _NAMES_ERROR
    for step in (result for result in results if result.exit_code):
        at_once = [test["name"] for test in step.failed_tests if test["ns"] in ("0", "0.0")]
        before_tests = cocotb and step.reach > 1 and not step.failed_tests
        for line in test_reasons(step):
            is_early = before_tests or line.partition(": ")[0] in at_once
            pattern = of_harness
            if is_early:
                pattern = _BEFORE_READING
            if nothing_ran or pattern.search(line):
                faults.append(line)
    return faults


def _lines(text: str) -> list[str]:
    """The lines of an output without noise, indentation and empty lines."""
    lines = _NOISE.sub("", text).splitlines()
    return list(filter(None, map(str.strip, lines)))


def _listed(lines: list[str]) -> Reasons:
    """The first few distinct lines, with paths relative to the workspace, cut to a readable length."""
    plain = (" ".join(line.replace("/code/", "").split()) for line in lines)
    return shortened(list(dict.fromkeys(plain)))
