"""What one grade may use: limits, which are part of a verdict's cache key, and a budget of CPU time below them.

An answer may use a multiple of the CPU time that a known-good answer took, never more than the limits' own `cpu_s`. CPU time
does not depend on how busy the machine is, so no verdict does. A golden answer is the measure where it was graded, else the
answer that passed and took most; the golden answer itself has the whole of `cpu_s`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict, Field

from rtl_core.types.answer import Answer
from rtl_core.types.problem import Problem


class Limits(BaseModel):
    """Resources of one compose service, and of the workspace that all services of a problem share."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    wall_s: float = Field(default=120.0, gt=0, le=3600)
    """Time of one service in which it computes or sleeps; what the machine does meanwhile is not counted. CVDP's own runner allows 600."""
    cpu_s: float = Field(default=120.0, gt=0, le=3600)
    """CPU time of all processes of one service together, and of any one process."""
    cpu_floor_s: float = Field(default=2.0, gt=0)
    """Where a known-good answer tells what is needed: the CPU time that an answer may use in any case (see `KnownGood`)."""
    cpu_factor: float = Field(default=10.0, ge=1)
    """Where a known-good answer tells what is needed: how many times as much CPU time an answer may use."""
    memory_mb: int = Field(default=4096, ge=256)
    """Address space of any one process, and resident memory of all processes together, in MiB."""
    processes: int = Field(default=128, ge=16)
    """Processes and threads alive at one time."""
    file_mb: int = Field(default=256, ge=1)
    """Size of any one file, in MiB."""
    disk_mb: int = Field(default=512, ge=8)
    """Size of the whole workspace, which lives in memory, in MiB."""
    output_kb: int = Field(default=256, ge=4)
    """How much of a service's output is kept (its beginning and its end), in KiB."""
    output_mb: int = Field(default=64, ge=1)
    """A service that writes more than this is stopped, in MiB."""


@dataclass(frozen=True)
class Budget:
    """CPU seconds of an answer, and what they were taken from."""

    cpu_s: float
    good_s: float
    """CPU seconds of the known-good answer."""
    golden: bool
    """Whether that is the golden answer, rather than one that passed."""

    def __str__(self) -> str:
        who = "the known-good answer takes" if self.golden else "answers that pass take at most"
        return f"{who} {self.good_s:.2g} s"


@dataclass
class KnownGood:
    """CPU seconds of known-good answers by problem fingerprint. Threads may share it."""

    golden: dict[str, float] = field(default_factory=dict)
    passing: dict[str, float] = field(default_factory=dict)

    def learn(self, problem: Problem, answer: Answer, cpu_s: float) -> None:
        """Takes in what an answer took that passed."""
        kind = self.golden if answer.files == problem.golden else self.passing
        kind[problem.fingerprint] = max(cpu_s, kind.get(problem.fingerprint, 0.0))

    def budget(self, problem: Problem, answer: Answer, limits: Limits) -> Budget | None:
        """What `answer` may use; None where nothing tells, so that the limits alone hold."""
        golden = self.golden.get(problem.fingerprint)
        good_s = self.passing.get(problem.fingerprint) if golden is None else golden
        if good_s is None or answer.files == problem.golden:
            return None
        cpu_s = min(limits.cpu_s, max(limits.cpu_floor_s, limits.cpu_factor * good_s))
        return Budget(cpu_s, good_s, golden is not None)
