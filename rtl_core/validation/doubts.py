"""Were the passes of a problem deserved: each held against the golden answer, or against one another where there is none. How large is each?

While a run trains that is done within a share of the grading time, and once for each answer (`Doubts`). A proof decides most answers in a
fifth of a second of CPU; a short simulation tells the others. `rtl-distill audit` looks longer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from attrs import define, field

from rtl_core.equivalence.consensus import Files, Words, by_consensus, words_of
from rtl_core.equivalence.differential import compare, harness_inputs
from rtl_core.equivalence.pair import Comparison, IncomparableError, Pair
from rtl_core.equivalence.proof import netlist
from rtl_core.equivalence.side_by_side import Effort, Trace
from rtl_core.grading.grader import Grader
from rtl_core.types.netlist import Netlist
from rtl_core.types.problem import Problem
from rtl_core.validation.found_golden import with_golden

EFFORT = replace(Effort.of_cycles(2_000, 2, 3.0), proof_first=True)
LEAST_TEXTS = 3
"""Without a golden answer, so many distinct passing answers are held against one another."""


def hold(
    grader: Grader, problem: Problem, answers: Sequence[Files], effort: Effort, once: Once, sizes: bool = True
) -> list[Comparison]:
    """What is known of the passing answers of one problem, with their `sizes` or without. Raises InfrastructureError where the executor fails."""
    executor, limits = grader.executor, grader.limits
    if problem.golden is None:
        driven = once.harness_inputs(grader, problem, answers[0])
        found = by_consensus(
            executor, lambda files: with_golden(problem, files, grader), answers, limits, effort, driven
        )
    else:
        found = [compare(executor, problem, problem.golden, files, limits, effort=effort) for files in answers]
    if not sizes:
        return found
    sized = [once.netlist(grader, problem, files) for files in answers]
    alike = [netlist for (netlist, _), one in zip(sized, found, strict=True) if netlist and one.agrees]
    if problem.golden is not None:
        golden, _ = once.netlist(grader, problem, problem.golden)
        alike = [golden] if golden else []
    cells, levels = (median([getattr(one, name) for one in alike] or [0]) for name in ("cells", "levels"))
    return [
        replace(
            one,
            netlist=netlist.beside(cells, levels) if netlist and alike and one.agrees else netlist,
            cpu_s=one.cpu_s + cpu_s,
        )
        for one, (netlist, cpu_s) in zip(found, sized, strict=True)
    ]


@define(eq=False)
class Once:
    """What is found once of a design or of a harness."""

    netlists: dict[tuple[str, Words], Netlist | None] = field(factory=dict)
    """(problem's fingerprint, files without comments and white space) -> the netlist; None where Yosys cannot say."""
    driven: dict[str, Trace] = field(factory=dict)
    """Problem's fingerprint -> the inputs that its harness drives."""

    def harness_inputs(self, grader: Grader, problem: Problem, files: Files) -> Trace:
        """The inputs that the harness drives while it judges a passing answer. Raises InfrastructureError where the executor fails."""
        if problem.fingerprint not in self.driven:
            self.driven[problem.fingerprint] = harness_inputs(grader, with_golden(problem, files, grader), files)
        return self.driven[problem.fingerprint]

    def netlist(self, grader: Grader, problem: Problem, files: Files) -> tuple[Netlist | None, float]:
        """The netlist of a design, and the CPU time that it took now. Raises InfrastructureError where the executor fails."""
        key = problem.fingerprint, words_of(files)
        if key in self.netlists:
            return self.netlists[key], 0.0
        try:
            pair = Pair.of(grader.executor, with_golden(problem, files, grader), files, files, grader.limits)
        except IncomparableError:
            self.netlists[key] = None
            return None, 0.0
        self.netlists[key] = netlist(pair)
        return self.netlists[key], pair.cpu_s


@define(eq=False)
class Doubts:
    """What was found of passing answers so far, and the CPU time that it took. One for a run's process."""

    known: dict[tuple[str, Words], Comparison] = field(factory=dict)
    """(problem's fingerprint, files without comments and white space) -> what is known beside the golden answer."""
    spent_s: float = 0.0
    graded_s: float = 0.0
    """CPU time of grading the answers of the groups that were looked at; the caller adds it."""
    once: Once = field(factory=Once)

    def room(self, share: float) -> bool:
        """Whether less was spent than that share of the CPU time of grading."""
        return math.isinf(share) or self.spent_s < share * self.graded_s

    def look(
        self, grader: Grader, problem: Problem, answers: Sequence[Files], share: float, sizes: bool = False
    ) -> list[Comparison | None]:
        """What is known of the passing answers of one problem; None for which there is no time. Raises InfrastructureError.

        Synthesis takes as long as a proof, so it is left out where no `sizes` are asked for.
        """
        if problem.golden is None:
            if len(set(map(words_of, answers))) < LEAST_TEXTS or not self.room(share):
                return [None] * len(answers)
            return list(self._hold(grader, problem, answers, sizes))
        told: list[Comparison | None] = []
        for files in answers:
            key = problem.fingerprint, words_of(files)
            if key not in self.known and self.room(share):
                (self.known[key],) = self._hold(grader, problem, [files], sizes)
            told.append(self.known.get(key))
        return told

    def _hold(self, grader: Grader, problem: Problem, answers: Sequence[Files], sizes: bool) -> list[Comparison]:
        found = hold(grader, problem, answers, EFFORT, self.once, sizes)
        self.spent_s += sum(one.cpu_s for one in found)
        return found
