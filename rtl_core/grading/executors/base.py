"""The contract of an executor: run commands in a workspace that cannot harm or be harmed, and say what happened.

Every executor runs the same small agent (`rtl_core/grading/inside`) around the commands, so that mounts, limits,
output capture and the attestation of results are the same everywhere. Executors never judge: they report facts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from rtl_core.errors import InfrastructureError
from rtl_core.grading.limits import Limits

Overrun = Literal["wall", "cpu", "asleep", "memory", "processes", "output"]


class ExecutorDiedError(InfrastructureError):
    """The sandbox ended without an answer: nothing is known of the job, it may be run again."""


@dataclass(frozen=True)
class Mount:
    """One volume: a directory of the workspace, seen at an absolute path inside."""

    source: str
    """Relative to the workspace: `src`, `rtl`, ..."""
    target: str
    read_only: bool = True


@dataclass(frozen=True)
class Step:
    """One command: a compose service, or a compile of our own."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = "/code/rundir"


@dataclass(frozen=True)
class Job:
    """A workspace and the commands to run in it, in order, until one fails (when `stop_at_failure`) or all are done."""

    files: Mapping[str, str]
    """What is there to be judged: context and answer. Path relative to the workspace -> text."""
    harness: Mapping[str, str]
    """What judges. Written last, so that it wins; the directory `src` is read-only at every mount."""
    steps: tuple[Step, ...]
    mounts: tuple[Mount, ...] = (Mount("src", "/src"),)
    limits: Limits = field(default_factory=Limits)
    budget_s: float | None = None
    """CPU seconds that all processes of a step may use together, and how long all of them may sleep at a stretch. None: they
    may use `limits.cpu_s`, and sleep as long as `limits.wall_s` allows.
    """
    seed: int = 0
    cocotb: int = 2
    """Major version of cocotb that the harness is written for."""
    dockerfile: str | None = None
    """The harness' own Dockerfile; an executor without images ignores it."""
    stop_at_failure: bool = False
    trusted: bool = True
    """Whether what the steps run is a harness' or ours. Where a model wrote it, nobody inside listens to what it reports (so `sessions`,
    `builds` and `refused` stay empty), and it gets no channel to prepared processes.
    """
    waves: bool = False
    """Whether the simulations of Icarus dump their waves; what the steps say is the same, only later."""


@dataclass(frozen=True)
class Wave:
    """What one simulation dumped."""

    vcd: bytes
    """The text of the VCD file; cut off where the simulation was ended from outside."""
    modules: Mapping[str, str]
    """Path of each instance -> its module, such as `tb.dut` -> `adder`."""


@dataclass(frozen=True)
class Session:
    """One simulation as the simulator's own Python told it, over a channel that HDL cannot reach."""

    results_file: str
    complete: bool
    """Whether the results were written, rather than the simulation having ended before."""
    forged: bool
    """Whether the results file, once the simulator was gone, was not the one that cocotb had written."""
    tests: tuple[dict[str, Any], ...] = ()
    """Per test: name, status (`passed`, `failed`, `skipped`), message, module file, simulated nanoseconds."""
    changes: int = 0
    """How many changes of watched inputs were looked at."""
    moved: bool = True
    """Whether an output took two values; true also where nothing could be watched."""
    pacer: str = ""
    """The input that changed most at first: the clock, if it is a single bit; empty where none changed often."""


@dataclass(frozen=True)
class StepResult:
    """What became of one command."""

    name: str
    exit_code: int | None
    """None when it was stopped for an overrun; negative when a signal ended it."""
    output: str
    """Standard output and error together, capped in the middle."""
    wall_s: float
    cpu_s: float = 0.0
    """CPU time of the programs that were started, without the sandbox around them."""
    asleep_s: float = 0.0
    """The longest stretch in which all of them slept."""
    overrun: Overrun | None = None
    sessions: tuple[Session, ...] = ()
    builds: tuple[dict[str, Any], ...] = ()
    """Compiles that the harness' runner made: argv, exit code, output, and as `parameters` the values that were set and did
    not arrive ([name, what was set, what is there]).
    """
    refused: tuple[str, ...] = ()
    """Why compiled programs were not simulated, see `inside/lib/compiled.py`."""
    started: int = 0
    """How many compiled programs Icarus' simulator was started with."""

    @property
    def reach(self) -> int:
        """How far the harness came: 0 nothing was built, 1 a build was tried, 2 a simulator was started, 3 tests began."""
        return 3 if self.sessions else 2 if self.started else 1 if self.builds else 0


@dataclass(frozen=True)
class JobResult:
    """The results of the steps that were run, in order. `wall_s` counts from the request to the answer."""

    steps: tuple[StepResult, ...]
    wall_s: float
    waves: tuple[Wave, ...] = ()
    """Of each simulation in the order of their starts, where the job asked for them."""

    @property
    def cpu_s(self) -> float:
        return sum(step.cpu_s for step in self.steps)


class Executor(Protocol):
    """Runs jobs, several at a time when called from several threads."""

    name: str
    cpu_s: float
    """CPU time that the programs of all jobs have used so far."""
    derives_images: bool
    """Whether it installs what a harness' Dockerfile asks for."""

    def tools(self) -> dict[str, str]:
        """Name -> version of what decides a verdict, or `image` -> digest."""
        ...

    def has_module(self, name: str) -> bool:
        """Whether a harness' Python can import a module."""
        ...

    def run(self, job: Job) -> JobResult:
        """Runs one job. Raises InfrastructureError (or ExecutorDiedError) when nothing can be said of it."""
        ...

    def close(self) -> None:
        """Ends every process and removes every workspace. Further runs are an error."""
        ...
