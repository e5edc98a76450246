"""Passing answers looked at while a run trains, within a share of the grading time: each answer once.

A proof decides most of them in a fifth of a second of CPU; a short simulation tells the others. `rtl-distill audit` looks longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from attrs import define, field

from rtl_core.equivalence.deserved import Deserved, by_consensus, by_golden, words_of
from rtl_core.equivalence.side_by_side import Effort
from rtl_core.grading.grader import Grader
from rtl_core.types.problem import Problem
from rtl_core.validation.found_golden import with_golden

EFFORT = replace(Effort.of_cycles(2_000, 2, 3.0), proof_first=True)
LEAST_TEXTS = 3
"""Without a golden answer, so many distinct passing answers are held against one another."""
Files = dict[str, str]


@define(eq=False)
class Doubts:
    """What was found of passing answers so far, and the CPU time that it took. One for a run's process."""

    known: dict[tuple[str, tuple[tuple[str, str], ...]], Deserved] = field(factory=dict)
    """(problem's fingerprint, files without comments and white space) -> what is known beside the golden answer."""
    spent_s: float = 0.0

    def room(self, grader: Grader, share: float) -> bool:
        """Whether less was spent than that share of the CPU time of grading."""
        graded_s = grader.executor.cpu_s - self.spent_s
        return self.spent_s < share * graded_s

    def look(self, grader: Grader, problem: Problem, answers: Sequence[Files], share: float) -> list[Deserved | None]:
        """What is known of the passing answers of one problem; None for which there is no time. Raises InfrastructureError."""
        if problem.golden is None:
            if len({tuple(sorted(files.items())) for files in answers}) < LEAST_TEXTS or not self.room(grader, share):
                return [None] * len(answers)
            found = by_consensus(
                grader.executor, lambda files: with_golden(problem, files, grader), answers, grader.limits, EFFORT
            )
            self.spent_s += sum(one.cpu_s for one in found)
            return list(found)
        told: list[Deserved | None] = []
        for files in answers:
            key = problem.fingerprint, tuple(sorted((path, words_of(text)) for path, text in files.items()))
            if key not in self.known and self.room(grader, share):
                self.known[key] = by_golden(grader.executor, problem, files, grader.limits, EFFORT)
                self.spent_s += self.known[key].cpu_s
            told.append(self.known.get(key))
        return told
