"""Resources of one grading: limits, which are part of the verdict cache key, and a CPU budget below them.

An answer may use a multiple of the CPU time of a known-good answer, at most the limit `cpu_s`. CPU time
does not depend on the load of the machine, so verdicts do not either. The known-good answer is the golden
one if it was graded, else the slowest that passed. The golden answer itself may use all of `cpu_s`. It is
graded when the first other answer uses more than `cpu_floor_s`, so that it costs nothing where answers are
quick and bounds the others where they are not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from pydantic import BaseModel, Field

from rtl_grader.types.answer import Answer
from rtl_grader.types.problem import Problem


class Limits(BaseModel, frozen=True, extra="forbid"):
    """Limits of one compose service, and of the workspace that all services of a problem share."""

    wall_s: float = Field(default=120.0, gt=0, le=3600)
    """Time in which a service computes or sleeps; time spent waiting for a busy machine is not counted.
    CVDP's runner allows 600."""
    cpu_s: float = Field(default=120.0, gt=0, le=3600)
    """CPU time of all processes of one service together, and of any one process."""
    cpu_floor_s: float = Field(default=2.0, gt=0)
    """Lower bound of the budget that a known-good answer sets (see `KnownGood`)."""
    cpu_factor: float = Field(default=10.0, ge=1)
    """CPU time that an answer may use, as a multiple of the known-good answer's."""
    memory_mb: int = Field(default=4096, ge=256)
    """Address space of any one process, and resident memory of all processes together, in MiB."""
    processes: int = Field(default=128, ge=16)
    """Processes and threads alive at one time."""
    file_mb: int = Field(default=256, ge=1)
    """Size of any one file, in MiB."""
    disk_mb: int = Field(default=512, ge=8)
    """Size of the whole workspace, which lives in memory, in MiB."""
    output_kb: int = Field(default=256, ge=4)
    """Output of a service that is kept (its beginning and its end), in KiB."""
    output_mb: int = Field(default=64, ge=1)
    """Output of a service after which it is stopped, in MiB."""


NO_BUDGET = math.inf
"""CPU seconds of a golden answer that failed."""


@dataclass(frozen=True)
class Budget:
    """CPU seconds that an answer may use, and their origin."""

    cpu_s: float
    good_s: float
    """CPU seconds of the known-good answer."""
    golden: bool
    """Whether the known-good answer is the golden one."""

    def __str__(self) -> str:
        who = "answers that pass take at most"
        if self.golden:
            who = "the known-good answer takes"
        return f"{who} {self.good_s:.2g} s"


@dataclass
class KnownGood:
    """CPU seconds of known-good answers by problem fingerprint. Threads may share it."""

    golden: dict[str, float] = field(default_factory=dict)
    passing: dict[str, float] = field(default_factory=dict)

    def learn(self, problem: Problem, answer: Answer, cpu_s: float) -> None:
        """Record the CPU seconds of an answer that passed."""
        kind = self.passing
        if answer.files == problem.golden:
            kind = self.golden
        kind[problem.fingerprint] = max(cpu_s, kind.get(problem.fingerprint, 0.0))

    def budget(self, problem: Problem, answer: Answer, limits: Limits) -> Budget | None:
        """Return the budget of `answer`; None if only the limits apply. It is the smallest one, of 0 s,
        before the golden answer is graded."""
        waits = problem.golden is not None and limits.cpu_floor_s < limits.cpu_s
        golden = self.golden.get(problem.fingerprint, 0.0 if waits else NO_BUDGET)
        good_s: float | None = golden
        if golden == NO_BUDGET:
            good_s = self.passing.get(problem.fingerprint)
        if good_s is None or answer.files == problem.golden:
            return None
        cpu_s = min(limits.cpu_s, max(limits.cpu_floor_s, limits.cpu_factor * good_s))
        return Budget(cpu_s, good_s, golden != NO_BUDGET)
