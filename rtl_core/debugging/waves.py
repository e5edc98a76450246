"""Waves around a failing check: a stored rollout is graded again while its simulator dumps every signal.

Icarus writes them with a second root module beside the design (grading/inside/waves), so harness and design
are unchanged, and the recorded verdict stays. Not covered: harnesses that use Verilator, and answers that
never reach a simulator.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import chain

from rtl_core.debugging.again import Case, executor_of, grade_again, open_case
from rtl_core.debugging.checks import Check, first_failing_check
from rtl_core.errors import HistoryError
from rtl_core.history.store import History
from rtl_grader.grading.executors.base import Executor, Job, JobResult, Wave
from rtl_grader.grading.jobs import RecordingExecutor, stop_at_first_failure
from rtl_grader.grading.vcd import Changes, Dump, Variable, read_vcd
from rtl_grader.types.problem import Port
from rtl_grader.types.verdict import Outcome, Stage, Verdict

BEFORE, AFTER = 40, 8
"""Number of times with a change in a window, before and after the failing check."""
_SUFFIX = re.compile(rb"_b[0-9a-f]{24}\b")
SLOWER = 4
"""Factor for the time limit of a simulation that dumps."""


@dataclass(frozen=True)
class Signal:
    """A port of the demanded interface in the window."""

    name: str
    width: int
    direction: str | None
    changes: Changes
    """(time, bits), the first at the window's begin; the bits are `01xz`, the most significant first."""
    expected: Changes = ()
    """The same for the bench's reference design, if it has one."""

    def at(self, time: int) -> str:
        """The bits at a time; empty before the first."""
        return _at(self.changes, time)

    def expected_at(self, time: int) -> str:
        """The same for the reference design."""
        return _at(self.expected, time)


@dataclass(frozen=True)
class Waves:
    """A window of a simulation around the first failing check. Times are multiples of `step_s` seconds."""

    rollout: str
    verdict: Verdict
    """Of the grading that dumped, not the recorded one."""
    check: Check | None
    """The first failing check; None if no check failed, as in a simulation that never ends."""
    failed_at: int
    """Time of the last change of a signal up to the failing check; of the last one at all if its time is unknown."""
    begin: int
    end: int
    step_s: float
    scope: str
    """Path of the design in the simulation, such as `tb.dut`."""
    signals: tuple[Signal, ...]
    vcd: bytes = field(repr=False)
    """The whole dump, for GTKWave or Surfer."""

    @property
    def times(self) -> list[int]:
        """Every time in the window at which a signal changes."""
        return sorted(
            {time for signal in self.signals for time, _ in (*signal.changes, *signal.expected)}
        )


def waves_of(history: History, rollout: str) -> Waves:
    """Grade a stored rollout (its key, or a unique end of it) again with waves, in the kind of sandbox that
    judged it. Takes seconds; records nothing.

    Raises:
        HistoryError: there is no such rollout, or no waves of it; the message says why.
        ToolMissingError, InfrastructureError: the sandbox cannot be started here.
    """
    case = open_case(history, rollout)
    with closing(executor_of(case)) as executor:
        return dump(case, executor)


def dump(case: Case, executor: Executor) -> Waves:
    """The same in a given executor."""
    timed_out = case.verdict.outcome is Outcome.TIMEOUT
    watched = RecordingExecutor(
        executor, case.problem, lambda job: _with_waves(job, patient=not timed_out)
    )
    # Only the seed of the verdict.
    config = case.config.but("grading", seed=case.verdict.seed, seeds=1)
    case = replace(case, config=config)
    verdict = grade_again(case, watched, stage=Stage.TESTS)
    key = case.stored.rollout.key
    # A golden answer that judges is simulated first, without tests.
    dumped = [result for _, result in watched.runs if result.waves]
    tested = (one for one in dumped if any(step.sessions for step in one.steps))
    result = next(chain(tested, dumped), None)
    if result is None:
        reasons = "; ".join(verdict.reasons) or verdict.outcome.value
        raise HistoryError(
            f"{key} has no waves: {_why_none(watched, verdict)} ({reasons[:300]})",
            "waves need a simulation by Icarus Verilog",
        )
    check = first_failing_check(result.steps, case.problem.harness)
    wave = _wave(result, check)
    recording = read_vcd(wave.vcd)
    at_s = check.at_s if check else None
    covered = at_s and at_s <= recording.end * recording.step_s
    if b"$comment Dump file limit" in wave.vcd[-400:] and not covered:
        raise HistoryError(
            f"{key} has no waves of its failing check: the dump reached its limit before",
            "`rtl-distill show ROLLOUT --shell` opens its sandbox for a shorter one",
        )
    interface = case.problem.interface
    scope = _scope(interface.module if interface else None, wave.modules, recording)
    ports = {port.name: port for port in interface.ports} if interface else {}
    return _window(key, verdict, check, wave, recording, scope, ports)


def _with_waves(job: Job, *, patient: bool) -> Job:
    """The job with waves. Pytest stops at the first failing test, so its simulation is the last one."""
    steps = stop_at_first_failure(job.steps)
    slower = SLOWER if patient else 1
    seconds = min(3600.0, job.limits.wall_s * slower)
    more = {
        "wall_s": seconds,
        "cpu_s": seconds,
        "file_mb": 1024,
        "disk_mb": 2048,
        "output_kb": 8192,
    }
    budget_s = job.budget_s and job.budget_s * slower
    return replace(
        job,
        steps=steps,
        waves=True,
        limits=job.limits.model_copy(update=more),
        budget_s=budget_s,
    )


def _why_none(watched: RecordingExecutor, verdict: Verdict) -> str:
    if not watched.runs:
        return f"the answer was judged before its harness ran, {verdict.outcome.value.replace('_', ' ')}"
    if any(step.started for _, result in watched.runs for step in result.steps):
        return "its simulator wrote none"
    return "its harness started no simulation of Icarus"


def _wave(result: JobResult, check: Check | None) -> Wave:
    """The dump of the failed simulation: the check's if the simulations can be told apart, else the last."""
    sessions = sum(len(step.sessions) for step in result.steps)
    if check and check.simulation is not None and sessions == len(result.waves):
        return result.waves[check.simulation]
    # A rewritten bench (problems/testbench) adds a meaningless suffix to its names.
    last = result.waves[-1]
    modules = {
        _SUFFIX.sub(b"", path.encode()).decode(): module
        for path, module in last.modules.items()
    }
    head, separator, body = last.vcd.partition(b"\n$enddefinitions")
    return Wave(_SUFFIX.sub(b"", head) + separator + body, modules)


def _scope(demanded: str | None, modules: Mapping[str, str], recording: Dump) -> str:
    """Path of the design in the simulation: the first instance of the demanded module, else the first root
    with signals; empty if there is none."""
    instances = (path for path, module in modules.items() if module == demanded)
    roots = (path for path in recording.scopes if "." not in path)
    own = [path for path in (*instances, *roots) if path in recording.scopes]
    return next((path for path in own if path != "cocotb_iverilog_dump"), "")


def _window(
    key: str,
    verdict: Verdict,
    check: Check | None,
    wave: Wave,
    recording: Dump,
    scope: str,
    ports: Mapping[str, Port],
) -> Waves:
    own = recording.scopes.get(scope, {})
    named = [own[name] for name in ports if name in own] or list(own.values())
    variables = [variable for variable in named if recording.changed(variable)]
    if not variables:
        raise HistoryError(
            f"{key} has no waves: its simulator was ended before it wrote any",
            "a loop without a delay?",
        )
    reference = _reference(recording, scope, variables, ports)
    moment = recording.end
    if check is not None and check.at_s is not None:
        moment = round(check.at_s / recording.step_s)
    changes = recording.around(variables, moment, BEFORE, AFTER)
    expected = (
        recording.around(list(reference.values()), moment, BEFORE, AFTER) if reference else {}
    )
    every = chain(*changes.values(), *expected.values())
    times = sorted({time for time, _ in every}) or [0]
    place = max(0, bisect_right(times, moment) - 1)
    begin = times[max(0, place - BEFORE)]
    end = times[min(len(times) - 1, place + AFTER)]
    signals = tuple(
        Signal(
            variable.name,
            variable.width,
            ports[variable.name].direction if variable.name in ports else None,
            _cut(changes[variable.name], begin, end),
            _cut(expected.get(variable.name, ()), begin, end),
        )
        for variable in variables
    )
    failed_at = times[place]
    if check and check.expected is None:
        for signal in signals:
            if signal.name == check.signal and signal.expected:
                # A bench samples just before the change that triggers it.
                before = failed_at - 1
                at = before if signal.at(before) != signal.expected_at(before) else failed_at
                check = replace(check, got=signal.at(at), expected=signal.expected_at(at))
    step_s = recording.step_s
    return Waves(key, verdict, check, failed_at, begin, end, step_s, scope, signals, wave.vcd)


def _reference(
    recording: Dump, scope: str, design: list[Variable], ports: Mapping[str, Port]
) -> dict[str, Variable]:
    """The outputs of a bench's reference design: an instance beside the design that has all its ports."""
    parent, _, own = scope.rpartition(".")
    names = {variable.name for variable in design}
    for path, variables in recording.scopes.items():
        above, _, name = path.rpartition(".")
        if parent and above == parent and name != own and ports and names <= variables.keys():
            return {n: variables[n] for n in names if ports[n].direction == "output"}
    return {}


def _cut(changes: Changes, begin: int, end: int) -> Changes:
    """The changes in a window, starting with the value at its begin."""
    standing = [(begin, value) for time, value in changes if time <= begin][-1:]
    return (*standing, *((time, value) for time, value in changes if begin < time <= end))


def _at(changes: Changes, time: int) -> str:
    return next((value for at, value in reversed(changes) if at <= time), "")
