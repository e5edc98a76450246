"""How much CPU time an answer may use: a multiple of what a known-good answer took, never above the limits' own `cpu_s`.

CPU time does not depend on how busy the machine is, so no verdict does. A golden answer is the measure where it was graded,
else the answer that passed and took most; the golden answer itself has the whole of `cpu_s`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rtl_core.grading.limits import Limits
from rtl_core.types.answer import Answer
from rtl_core.types.problem import Problem


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
