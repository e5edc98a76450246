"""The protocol of executors: run commands in an isolated workspace and report what happened.

Every executor runs the same small agent (`packages/rtl-grader/rtl_grader/grading/inside`) around the
commands, so that mounts, limits, output capture and the attestation of results are the same everywhere.
Executors report facts and do not judge.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from rtl_grader.errors import InfrastructureError
from rtl_grader.grading.limits import Limits
from rtl_grader.types.files import Files

Overrun = Literal["wall", "cpu", "asleep", "memory", "processes", "output"]


Environment = dict[str, str]
"""Environment variables: name -> value."""
Message = dict[str, Any]
"""A JSON object from or to an agent."""


class ExecutorDiedError(InfrastructureError):
    """The sandbox ended without an answer; the job may be retried."""


@dataclass(frozen=True)
class Mount:
    """A volume: a directory of the workspace, mounted at an absolute path in the sandbox."""

    source: str
    """Relative to the workspace: `src`, `rtl`, ..."""
    target: str
    read_only: bool = True


@dataclass(frozen=True)
class Step:
    """One command: a compose service, or our own compile."""

    name: str
    argv: tuple[str, ...]
    env: Environment = field(default_factory=dict)
    cwd: str = "/code/rundir"


Steps = tuple[Step, ...]
Mounts = tuple[Mount, ...]
SOURCE_MOUNTS: Mounts = (Mount("src", "/src"),)
"""The volume that every harness has."""


@dataclass(frozen=True)
class Job:
    """A workspace and the commands to run in it, in order; with `stop_at_failure` until one fails."""

    files: Files
    """Context and answer: path relative to the workspace -> text."""
    harness: Files
    """Files of the harness. They override `files`; the directory `src` is read-only at every mount."""
    steps: Steps
    mounts: Mounts = SOURCE_MOUNTS
    limits: Limits = field(default_factory=Limits)
    budget_s: float | None = None
    """CPU seconds of all processes of a step together, and the longest time in which all of them may sleep. None: only
    `limits.cpu_s` and `limits.wall_s` apply.
    """
    seed: int = 0
    cocotb: int = 2
    """Major version of cocotb that the harness is written for."""
    dockerfile: str | None = None
    """The harness' own Dockerfile; executors without images ignore it."""
    stop_at_failure: bool = False
    trusted: bool = True
    """Whether the commands of the steps are the harness' or ours. Reports of programs that a model wrote
    are ignored (`sessions`, `builds` and `refused` stay empty), and they get no channel to warm processes.
    """
    waves: bool = False
    """Whether Icarus simulations dump waves; the results are the same but slower."""


@dataclass(frozen=True)
class Wave:
    """The waves of one simulation."""

    vcd: bytes
    """The VCD file; cut off if the simulation was stopped from outside."""
    modules: Mapping[str, str]
    """Path of each instance -> its module, such as `tb.dut` -> `adder`."""


@dataclass(frozen=True)
class Session:
    """One simulation as reported by the simulator's Python over a channel that HDL cannot reach."""

    results_file: str
    complete: bool
    """Whether the simulation got as far as writing its results."""
    forged: bool
    """Whether the results file differed from what cocotb wrote once the simulator had ended."""
    tests: tuple[Message, ...] = ()
    """Per test: name, status (`passed`, `failed`, `skipped`), message, module file, simulated nanoseconds."""
    changes: int = 0
    """Number of changes of watched inputs."""
    moved: bool = True
    """Whether an output took two values; true also if nothing could be watched."""
    pacer: str = ""
    """The first input that changed often, usually the clock; empty if there is none."""


@dataclass(frozen=True)
class StepResult:
    """The result of one command."""

    name: str
    exit_code: int | None
    """None if it was stopped for an overrun; negative if a signal ended it."""
    output: str
    """Standard output and error together, shortened in the middle."""
    wall_s: float
    cpu_s: float = 0.0
    """CPU time of the command's processes, without the sandbox."""
    asleep_s: float = 0.0
    """The longest stretch in which all of them slept."""
    overrun: Overrun | None = None
    sessions: tuple[Session, ...] = ()
    builds: tuple[Message, ...] = ()
    """Compiles by the harness' runner: argv, exit code, output, and as `parameters` the settings that had no effect
    ([name, value set, value in the design]).
    """
    refused: tuple[str, ...] = ()
    """Why compiled programs were not simulated, see `inside/lib/compiled.py`."""
    started: tuple[int, ...] = ()
    """Per start of Icarus' simulator: the number of compiled programs, 0 by a rewritten test bench
    (problems/testbench)."""
    still: bool = False
    """Whether a rewritten test bench saw no output change."""

    @property
    def tests(self) -> list[Message]:
        """The tests of all sessions, see `Session.tests`."""
        return [test for session in self.sessions for test in session.tests]

    @property
    def failed_tests(self) -> list[Message]:
        """Those that failed; a service may fail without one."""
        return [test for test in self.tests if test["status"] == "failed"]

    @property
    def is_attested(self) -> bool:
        """Whether cocotb brought each simulation to an end: what a design prints and when it ends prove nothing."""
        return sum(self.started) <= sum(session.complete for session in self.sessions)

    @property
    def record(self) -> Message | None:
        """The object of JSON that is the last line of the output; None if there is none."""
        _, _, line = self.output.rstrip("\n").rpartition("\n")
        try:
            value = json.loads(line)
        except ValueError:
            return None
        return value if isinstance(value, dict) else None

    @property
    def reach(self) -> int:
        """How far the harness got: 0 nothing was built, 1 a build was tried, 2 a simulator was started, 3
        tests began."""
        if self.sessions:
            return 3
        if self.started:
            return 2
        return 1 if self.builds else 0


@dataclass(frozen=True)
class JobResult:
    """The results of the executed steps, in order. `wall_s` is measured from request to answer."""

    steps: tuple[StepResult, ...]
    wall_s: float
    waves: tuple[Wave, ...] = ()
    """Waves of each simulation in the order of their starts, if the job asked for them."""

    @property
    def cpu_s(self) -> float:
        return sum(step.cpu_s for step in self.steps)


class Executor(Protocol):
    """Runs jobs, concurrently when called from several threads."""

    name: str
    cpu_s: float
    """CPU seconds of all jobs so far."""
    derives_images: bool
    """Whether it installs what a harness' Dockerfile adds."""

    def tools(self) -> dict[str, str]:
        """Name -> version of the tools that decide verdicts, or `image` -> digest."""
        ...

    def has_module(self, name: str) -> bool:
        """Whether a harness' Python can import a module."""
        ...

    def run(self, job: Job) -> JobResult:
        """Run one job. Raises InfrastructureError (or ExecutorDiedError) if it has no result."""
        ...

    def close(self) -> None:
        """End all processes and remove all workspaces. The executor cannot run jobs afterwards."""
        ...
