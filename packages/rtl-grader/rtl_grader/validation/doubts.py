"""Audit of passing answers: compare each with the golden answer, or with each other if there is none, and
measure its size.

During training this takes at most a share of the grading time, and examines each answer once (`Doubts`). A
proof decides most answers in 0.2 CPU seconds; a short simulation decides the others. `rtl-distill grade audit`
takes more time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from statistics import median

from attrs import define, field

from rtl_grader.equivalence.consensus import Files, by_consensus
from rtl_grader.equivalence.differential import compare, harness_inputs
from rtl_grader.equivalence.effort import Effort
from rtl_grader.equivalence.pair import Comparison, IncomparableError, Pair
from rtl_grader.equivalence.proof import netlist
from rtl_grader.grading.grader import Grader
from rtl_grader.hdl.text import Words, compact_files
from rtl_grader.traces.stimuli import Trace
from rtl_grader.types.netlist import Netlist
from rtl_grader.types.problem import Problem
from rtl_grader.validation.found_golden import with_golden

EFFORT = replace(Effort.of_cycles(2_000, 2, 3.0), proof_first=True)
LEAST_TEXTS = 3
"""Minimum number of distinct passing answers to compare with each other if there is no golden answer."""


def audit_passes(
    grader: Grader,
    problem: Problem,
    answers: Sequence[Files],
    effort: Effort,
    cache: DesignCache,
    sizes: bool = True,
) -> list[Comparison]:
    """Comparison of each passing answer of a problem, with netlist sizes if `sizes`. Raises
    InfrastructureError if the executor fails."""
    executor, limits = grader.executor, grader.limits
    golden = problem.golden
    if golden is None:
        comparisons = by_consensus(
            executor,
            lambda files: with_golden(problem, files, grader),
            answers,
            limits,
            effort,
            cache.harness_inputs(grader, problem, answers[0]),
        )
    else:
        comparisons = []
        for files in answers:
            if compact_files(files) == compact_files(golden):
                same = Comparison("equal", "the same text", "proof")
                comparisons.append(same)
            else:
                other = compare(executor, problem, golden, files, limits, effort)
                comparisons.append(other)
    return _with_sizes(grader, problem, answers, comparisons, cache) if sizes else comparisons


def _with_sizes(
    grader: Grader,
    problem: Problem,
    answers: Sequence[Files],
    comparisons: Sequence[Comparison],
    cache: DesignCache,
) -> list[Comparison]:
    """The comparisons with netlists; those of answers that agree are relative to the golden answer's, or to
    the median of them all if there is none."""
    sized = []
    references = []
    for files, comparison in zip(answers, comparisons, strict=True):
        netlist, cpu_s = cache.netlist(grader, problem, files)
        sized.append((comparison, netlist, cpu_s))
        if netlist and comparison.agrees:
            references.append(netlist)
    if problem.golden is not None:
        golden, _ = cache.netlist(grader, problem, problem.golden)
        references = [golden] if golden else []
    cells = median([one.cells for one in references] or [0])
    levels = median([one.levels for one in references] or [0])
    results = []
    for comparison, netlist, cpu_s in sized:
        if netlist and references and comparison.agrees:
            netlist = netlist.beside(cells, levels)
        whole_s = comparison.cpu_s + cpu_s
        results.append(replace(comparison, netlist=netlist, cpu_s=whole_s))
    return results


@define(eq=False)
class DesignCache:
    """Results that are computed once per design or harness."""

    netlists: dict[tuple[str, Words], Netlist | None] = field(factory=dict)
    """(problem fingerprint, files without comments and white space) -> netlist; None if Yosys fails."""
    driven: dict[str, Trace] = field(factory=dict)
    """Problem fingerprint -> inputs that its harness drives."""

    def harness_inputs(self, grader: Grader, problem: Problem, files: Files) -> Trace:
        """Inputs that the harness drives while it tests a passing answer. Raises InfrastructureError if the
        executor fails."""
        if problem.fingerprint not in self.driven:
            self.driven[problem.fingerprint] = harness_inputs(
                grader, with_golden(problem, files, grader), files
            )
        return self.driven[problem.fingerprint]

    def netlist(
        self, grader: Grader, problem: Problem, files: Files
    ) -> tuple[Netlist | None, float]:
        """Netlist of a design, and the CPU seconds spent on it now. Raises InfrastructureError if the
        executor fails."""
        key = problem.fingerprint, compact_files(files)
        if key in self.netlists:
            return self.netlists[key], 0.0
        try:
            pair = Pair.of(
                grader.executor,
                with_golden(problem, files, grader),
                files,
                files,
                grader.limits,
            )
        except IncomparableError:
            self.netlists[key] = None
            return None, 0.0
        self.netlists[key] = netlist(pair)
        return self.netlists[key], pair.cpu_s


@define(eq=False)
class Doubts:
    """Comparisons of passing answers so far, and the CPU time spent on them. One per run process."""

    comparisons: dict[tuple[str, Words], Comparison] = field(factory=dict)
    """(problem fingerprint, files without comments and white space) -> comparison with the golden answer."""
    spent_s: float = 0.0
    graded_s: float = 0.0
    """CPU time of grading the examined groups; the caller adds it."""
    cache: DesignCache = field(factory=DesignCache)

    def has_time(self, share: float) -> bool:
        """Whether less than this share of the CPU time of grading was spent."""
        return math.isinf(share) or self.spent_s < share * self.graded_s

    def look(
        self,
        grader: Grader,
        problem: Problem,
        answers: Sequence[Files],
        share: float,
        sizes: bool = False,
    ) -> list[Comparison | None]:
        """Comparison of each passing answer of a problem; None if there is no time for it. Raises InfrastructureError.

        `sizes` adds netlists, whose synthesis takes as long as a proof.
        """
        if problem.golden is None:
            if len(set(map(compact_files, answers))) < LEAST_TEXTS or not self.has_time(share):
                return [None] * len(answers)
            return list(self._audit(grader, problem, answers, sizes))
        results: list[Comparison | None] = []
        for files in answers:
            key = problem.fingerprint, compact_files(files)
            if key not in self.comparisons and self.has_time(share):
                (self.comparisons[key],) = self._audit(grader, problem, [files], sizes)
            results.append(self.comparisons.get(key))
        return results

    def _audit(
        self, grader: Grader, problem: Problem, answers: Sequence[Files], sizes: bool
    ) -> list[Comparison]:
        comparisons = audit_passes(grader, problem, answers, EFFORT, self.cache, sizes)
        self.spent_s += sum(one.cpu_s for one in comparisons)
        return comparisons


def doubt_of_golden(
    grader: Grader, problem: Problem, answers: Sequence[Files]
) -> tuple[Comparison, Files]:
    """How what most independent answers agree on compares with the golden answer, and an answer of that
    majority; `unknown` and no files without a majority, with the reason.

    Raises InfrastructureError if the executor fails.
    """
    assert problem.golden is not None, "only golden answers are doubted"
    executor, limits = grader.executor, grader.limits
    as_golden = partial(with_golden, problem, grader=grader)
    opinions = by_consensus(executor, as_golden, answers, limits, EFFORT)
    agreeing = [place for place, one in enumerate(opinions) if one.result == "same"]
    if not agreeing:
        detail = opinions[0].detail if opinions else "no answer has files"
        return Comparison("unknown", detail, "consensus"), {}
    first = agreeing[0]
    result = compare(executor, problem, problem.golden, answers[first], limits, EFFORT)
    return replace(result, share=opinions[first].share), answers[first]
