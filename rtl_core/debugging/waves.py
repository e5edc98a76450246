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
    section = case.config.grading.model_copy(update={"seed": case.verdict.seed, "seeds": 1})
    case = replace(case, config=case.config.model_copy(update={"grading": section}))
    verdict = grade_again(case, watched, stage=Stage.TESTS)
    key = case.stored.rollout.key
    result = next((result for _, result in watched.runs if result.waves), None)
    if result is None:
        said = "; ".join(verdict.reasons) or verdict.outcome.value
        raise HistoryError(
            f"{key} has no waves: {_why_none(watched, verdict)} ({said[:300]})",
            "waves need a simulation by Icarus Verilog",
        )
    check = first_failing_check(result.steps, case.problem.harness)
    wave = _wave(result, check)
    found = read_vcd(wave.vcd)
    if b"$comment Dump file limit" in wave.vcd[-400:] and not (
        check and check.at_s and check.at_s <= found.end * found.step_s
    ):
        raise HistoryError(
            f"{key} has no waves of its failing check: the dump reached its limit before",
            "`rtl-distill debug ROLLOUT --shell` opens its sandbox for a shorter one",
        )
    scope = _scope(case, wave.modules, found)
    ports = (
        {port.name: port for port in case.problem.interface.ports} if case.problem.interface else {}
    )
    return _window(key, verdict, check, wave, found, scope, ports)


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
        job, steps=steps, waves=True, limits=job.limits.model_copy(update=more), budget_s=budget_s
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
        _SUFFIX.sub(b"", path.encode()).decode(): module for path, module in last.modules.items()
    }
    head, whole, body = last.vcd.partition(b"\n$enddefinitions")
    return Wave(_SUFFIX.sub(b"", head) + whole + body, modules)


def _scope(case: Case, modules: Mapping[str, str], found: Dump) -> str:
    """Path of the design in the simulation: the first instance of the demanded module, else the first root
    with signals."""
    wanted = case.problem.interface.module if case.problem.interface else None
    for path, module in modules.items():
        if module == wanted and path in found.scopes:
            return path
    roots = [path for path in found.scopes if "." not in path and path != "cocotb_iverilog_dump"]
    if not roots:
        raise HistoryError(
            f"{case.stored.rollout.key} has no waves: its simulator was ended before it wrote any",
            "a loop without a delay?",
        )
    return roots[0]


def _window(
    key: str,
    verdict: Verdict,
    check: Check | None,
    wave: Wave,
    found: Dump,
    scope: str,
    ports: Mapping[str, Port],
) -> Waves:
    own = found.scopes[scope]
    named = [own[name] for name in ports if name in own] or list(own.values())
    shown = [variable for variable in named if found.changed(variable)]
    if not shown:
        raise HistoryError(
            f"{key} has no waves: its simulator was ended before it wrote any",
            "a loop without a delay?",
        )
    reference = _reference(found, scope, shown, ports)
    told = found.end if check is None or check.at_s is None else round(check.at_s / found.step_s)
    all_changes = found.around(shown, told, BEFORE, AFTER)
    should = found.around(list(reference.values()), told, BEFORE, AFTER) if reference else {}
    times = sorted(
        {time for of in (all_changes, should) for changes in of.values() for time, _ in changes}
    ) or [0]
    place = max(0, bisect_right(times, told) - 1)
    begin = times[max(0, place - BEFORE)]
    end = times[min(len(times) - 1, place + AFTER)]
    signals = tuple(
        Signal(
            variable.name,
            variable.width,
            ports[variable.name].direction if variable.name in ports else None,
            _cut(all_changes[variable.name], begin, end),
            _cut(should.get(variable.name, ()), begin, end),
        )
        for variable in shown
    )
    failed_at = times[place]
    if check and check.expected is None:
        for signal in signals:
            if signal.name == check.signal and signal.expected:
                # A bench samples just before the change that triggers it.
                before = failed_at - 1
                seen = before if signal.at(before) != signal.expected_at(before) else failed_at
                check = replace(check, got=signal.at(seen), expected=signal.expected_at(seen))
    return Waves(key, verdict, check, failed_at, begin, end, found.step_s, scope, signals, wave.vcd)


def _reference(
    found: Dump, scope: str, shown: list[Variable], ports: Mapping[str, Port]
) -> dict[str, Variable]:
    """The outputs of a bench's reference design: an instance beside the design that has all its ports."""
    parent, _, own = scope.rpartition(".")
    names = {variable.name for variable in shown}
    for path, variables in found.scopes.items():
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
