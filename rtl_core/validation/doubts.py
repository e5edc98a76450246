"""Were the passes of a problem deserved: each held against the golden answer, or against one another where there is none.

While a run trains that is done within a share of the grading time, and once for each answer (`Doubts`). A proof decides most answers in a
fifth of a second of CPU; a short simulation tells the others. `rtl-distill audit` looks longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from attrs import define, field

from rtl_core.equivalence.consensus import Files, by_consensus, words_of
from rtl_core.equivalence.differential import compare
from rtl_core.equivalence.pair import Comparison
from rtl_core.equivalence.side_by_side import Effort
from rtl_core.grading.grader import Grader
from rtl_core.types.problem import Problem
from rtl_core.validation.found_golden import with_golden

EFFORT = replace(Effort.of_cycles(2_000, 2, 3.0), proof_first=True)
LEAST_TEXTS = 3
"""Without a golden answer, so many distinct passing answers are held against one another."""


def hold(grader: Grader, problem: Problem, answers: Sequence[Files], effort: Effort) -> list[Comparison]:
    """What is known of the passing answers of one problem. Raises InfrastructureError where the executor fails."""
    executor, limits = grader.executor, grader.limits
    if problem.golden is None:
        return by_consensus(executor, lambda files: with_golden(problem, files, grader), answers, limits, effort)
    return [compare(executor, problem, problem.golden, files, limits, effort=effort) for files in answers]


@define(eq=False)
class Doubts:
    """What was found of passing answers so far, and the CPU time that it took. One for a run's process."""

    known: dict[tuple[str, tuple[tuple[str, str], ...]], Comparison] = field(factory=dict)
    """(problem's fingerprint, files without comments and white space) -> what is known beside the golden answer."""
    spent_s: float = 0.0

    def room(self, grader: Grader, share: float) -> bool:
        """Whether less was spent than that share of the CPU time of grading."""
        graded_s = grader.executor.cpu_s - self.spent_s
        return self.spent_s < share * graded_s

    def look(self, grader: Grader, problem: Problem, answers: Sequence[Files], share: float) -> list[Comparison | None]:
        """What is known of the passing answers of one problem; None for which there is no time. Raises InfrastructureError."""
        if problem.golden is None:
            if len(set(map(words_of, answers))) < LEAST_TEXTS or not self.room(grader, share):
                return [None] * len(answers)
            return list(self._hold(grader, problem, answers))
        told: list[Comparison | None] = []
        for files in answers:
            key = problem.fingerprint, words_of(files)
            if key not in self.known and self.room(grader, share):
                (self.known[key],) = self._hold(grader, problem, [files])
            told.append(self.known.get(key))
        return told

    def _hold(self, grader: Grader, problem: Problem, answers: Sequence[Files]) -> list[Comparison]:
        found = hold(grader, problem, answers, EFFORT)
        self.spent_s += sum(one.cpu_s for one in found)
        return found
