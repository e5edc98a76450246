"""Find a golden answer among verified samples, for problems whose set withholds it (most of public CVDP).

A sample becomes the golden answer if it passes under every seed, behaves like at least one other
independent sample, and like most of the passing samples. It may still be wrong: samples of one teacher can
share a mistake that the harness does not see. Such an answer is therefore marked `found` everywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rtl_grader.equivalence.consensus import classes_of
from rtl_grader.equivalence.differential import compare
from rtl_grader.equivalence.pair import Comparison
from rtl_grader.extraction.answer_to import answer_to
from rtl_grader.grading.cache import normalised
from rtl_grader.grading.grader import Grader
from rtl_grader.types.answer import Answer
from rtl_grader.types.files import Files
from rtl_grader.types.problem import Interface, InterfaceSource, Problem

Sample = tuple[tuple[str, str], ...]
"""(path, normalised text) of each of its files."""
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
    counts: Counter[Sample] = Counter()
    for text in samples:
        if files := answer_to(problem, text).files:
            counts[tuple(sorted((path, normalised(body)) for path, body in files.items()))] += 1
    candidates = sorted(counts, key=lambda files: (-counts[files], _size(files)))[:MAX_SAMPLES]
    graders = [grader.but(seed=seed, cache=None) for seed in seeds]
    steady: list[dict[str, str]] = []
    weights: list[int] = []
    for candidate in candidates:
        answer = Answer(files=dict(candidate))
        if all(one.grade(problem, answer).passed for one in graders):
            steady.append(dict(candidate))
            weights.append(counts[candidate])
    passing = sum(weights)
    if passing < MIN_AGREEING:
        reason = f"{passing} of {len(samples)} samples pass again under every seed"
        return None, f"{reason}, {MIN_AGREEING} are needed"

    def compared(golden: int, other: int) -> Comparison:
        files = steady[golden]
        as_golden = with_golden(problem, files, grader)
        return compare(grader.executor, as_golden, files, steady[other], grader.limits)

    classes = classes_of(weights, compared).by_size
    if not classes:
        return None, f"the {passing} passing samples cannot be held against one another"
    best, agreeing = classes[0].members[0], classes[0].texts
    if agreeing < MIN_AGREEING or 2 * agreeing <= passing:
        return (
            None,
            f"the {passing} passing samples do not agree: at most {agreeing} behave alike",
        )
    seeds_used = len(set(seeds))
    reason = f"{agreeing} of {passing} passing samples behave alike under {seeds_used} seeds"
    return steady[best], reason


def _size(files: Sample) -> int:
    return sum(len(text) for _, text in files)


def with_golden(problem: Problem, files: Files, grader: Grader) -> Problem:
    """Copy of the problem with a found golden answer, and with the answer's interface if the problem's is incomplete.

    The interface is read in the grader's analysis process, which has limits, because a model wrote the text.
    """
    interface = problem.interface
    if interface is not None and not _is_complete(interface):
        complete = grader.analyse(problem, files).interface
        if complete is not None:
            interface = complete.model_copy(
                update={"source": InterfaceSource.CONTEXT, "exact": False}
            )
    return problem.model_copy(update={"golden": dict(files), "interface": interface})


def _is_complete(interface: Interface) -> bool:
    ports = interface.ports
    return all(port.width is not None and port.direction is not None for port in ports)
