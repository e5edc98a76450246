"""Find a golden answer among verified samples, for problems whose set withholds it (most of public CVDP).

A sample becomes the golden answer if it passes under every seed, behaves like at least one other
independent sample, and like most of the passing samples. It may still be wrong: samples of one teacher can
share a mistake that the harness does not see. Such an answer is therefore marked `found` everywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rtl_grader.equivalence.consensus import classes_of
from rtl_grader.equivalence.differential import compare
from rtl_grader.equivalence.pair import Comparison
from rtl_grader.extraction.answer_to import answer_to
from rtl_grader.grading.cache import normalised
from rtl_grader.grading.grader import Grader
from rtl_grader.types.answer import Answer
from rtl_grader.types.problem import InterfaceSource, Problem

MIN_AGREEING = 2
MAX_SAMPLES = 8
"""Maximum number of distinct samples to compare; more cost much and add little."""


def find_golden(
    problem: Problem, samples: Sequence[str], grader: Grader, seeds: Sequence[int]
) -> tuple[dict[str, str] | None, str]:
    """Return the files of the golden answer or None, and the reason in words.

    Args:
        problem: a problem without a golden answer.
        samples: independently drawn responses.
        grader: grades the samples again under each of `seeds`.
    """
    answers = [answer_to(problem, text).files for text in samples]
    counts = Counter(
        tuple(sorted((path, normalised(body)) for path, body in f.items())) for f in answers if f
    )
    graders = [grader.but(seed=seed, cache=None) for seed in seeds]
    candidates = sorted(counts, key=lambda key: (-counts[key], sum(len(body) for _, body in key)))[
        :MAX_SAMPLES
    ]
    kept = [
        key
        for key in candidates
        if all(g.grade(problem, Answer(files=dict(key))).passed for g in graders)
    ]
    steady, weights = [dict(key) for key in kept], [counts[key] for key in kept]
    if sum(weights) < MIN_AGREEING:
        return (
            None,
            f"{sum(weights)} of {len(samples)} samples pass again under every seed, {MIN_AGREEING} are needed",
        )

    def compared(golden: int, other: int) -> Comparison:
        files = steady[golden]
        return compare(
            grader.executor,
            with_golden(problem, files, grader),
            files,
            steady[other],
            grader.limits,
        )

    classes = classes_of(weights, compared).by_size
    if not classes:
        return None, f"the {sum(weights)} passing samples cannot be held against one another"
    best, agreeing, passing = classes[0].members, classes[0].texts, sum(weights)
    if agreeing < MIN_AGREEING or 2 * agreeing <= passing:
        return None, f"the {passing} passing samples do not agree: at most {agreeing} behave alike"
    return steady[
        best[0]
    ], f"{agreeing} of {passing} passing samples behave alike under {len(set(seeds))} seeds"


def with_golden(problem: Problem, files: Mapping[str, str], grader: Grader) -> Problem:
    """Copy of the problem with a found golden answer, and with the answer's interface if the problem's is incomplete.

    The interface is read in the grader's analysis process, which has limits, because a model wrote the text.
    """
    interface = problem.interface
    if interface is not None and any(
        p.width is None or p.direction is None for p in interface.ports
    ):
        read = grader.analyse(problem, files).interface
        if read is not None:
            interface = read.model_copy(update={"source": InterfaceSource.CONTEXT, "exact": False})
    return problem.model_copy(update={"golden": dict(files), "interface": interface})
