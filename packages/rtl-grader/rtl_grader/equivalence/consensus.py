"""Find out which answers to a problem behave alike, without a golden answer.

Answers with the same outputs on all tested inputs form a class. A class with most of the independent texts,
or by far the most, is the majority. An answer outside it is doubtful, unless the specification leaves open
what it does. A mistake of all answers is not found.

Two answers are compared in the same way as an answer and a golden one
(`rtl_grader.equivalence.differential`), in both directions, because one may define what the other leaves
unknown (X). Answers that differ only in latency, or in outputs while a valid-like output is 0, behave
alike, and the result says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from rtl_grader.equivalence import differential
from rtl_grader.equivalence.effort import Effort
from rtl_grader.equivalence.pair import Comparison
from rtl_grader.grading.executors.base import Executor
from rtl_grader.grading.limits import Limits
from rtl_grader.hdl.text import compact_files
from rtl_grader.traces.stimuli import Trace
from rtl_grader.types.files import Files
from rtl_grader.types.problem import Problem

MAX_CLASSES = 8
"""Largest number of classes that an answer is compared with, the largest first; very different answers say
little about each other."""

MANY, AHEAD = 4, 3
"""A class of at least MANY texts, and AHEAD times as many as the next one, is the majority even without
half of all texts."""

Compare = Callable[[int, int], Comparison]
"""Compares answer `other` with answer `golden`, both given by their places in the list."""


@dataclass
class AnswerClass:
    """Answers that behave alike."""

    members: list[int] = field(default_factory=list)
    """Places in the list of distinct answers; the first represents the class."""
    texts: int = 0
    """Number of independent texts with these answers."""


@dataclass(frozen=True)
class Classes:
    """Answers by behaviour."""

    by_size: list[AnswerClass]
    """The largest first."""
    incomparable: dict[int, str]
    """Answers that cannot even be compared with themselves -> reason."""
    apart: dict[frozenset[int], Comparison]
    """How the representatives of two classes differ."""

    @property
    def majority(self) -> AnswerClass | None:
        """The class with more than half of the comparable independent texts, or with by far the most."""
        sizes = [one.texts for one in self.by_size]
        first, second, *_ = [*sizes, 0, 0]
        if first <= 1:
            return None
        most = 2 * first > sum(sizes)
        far = first >= MANY and first >= AHEAD * second
        return self.by_size[0] if most or far else None


def classes_of(texts: Sequence[int], compare: Compare) -> Classes:
    """The classes of distinct answers.

    Args:
        texts: number of independent texts of each distinct answer.
        compare: called as rarely as possible.
    """
    classes: list[AnswerClass] = []
    incomparable: dict[int, str] = {}
    apart: dict[frozenset[int], Comparison] = {}
    for answer in sorted(range(len(texts)), key=lambda i: -texts[i]):
        itself = compare(answer, answer)
        if not itself.agrees:
            incomparable[answer] = itself.detail
            continue
        for one in _largest_first(classes)[:MAX_CLASSES]:
            first = one.members[0]
            comparison = compare(first, answer)
            if comparison.agrees:  # both ways
                comparison = compare(answer, first)
            if comparison.agrees:
                one.members.append(answer)
                one.texts += texts[answer]
                break
            apart[frozenset((first, answer))] = comparison
        else:
            classes.append(AnswerClass([answer], texts[answer]))
    return Classes(_largest_first(classes), incomparable, apart)


def _largest_first(classes: list[AnswerClass]) -> list[AnswerClass]:
    return sorted(classes, key=lambda one: -one.texts)


def by_consensus(
    executor: Executor,
    as_golden: Callable[[Files], Problem],
    answers: Sequence[Files],
    limits: Limits,
    effort: Effort,
    driven: Trace = (),
) -> list[Comparison]:
    """Compare the passing answers of a problem with each other. Copies of a text count once.

    Args:
        as_golden: the problem with one of the answers as its golden answer, and with that answer's interface.
        driven: inputs that the harness drives.

    Raises InfrastructureError if the executor fails.
    """
    names = [compact_files(files) for files in answers]
    texts = dict(zip(reversed(names), reversed(answers), strict=True))
    distinct = list(texts)
    cpu_s = 0.0

    def compare(golden: int, other: int) -> Comparison:
        nonlocal cpu_s
        one = texts[distinct[golden]]
        two = texts[distinct[other]]
        problem = as_golden(one)
        result = differential.compare(executor, problem, one, two, limits, effort, True, driven)
        cpu_s += result.cpu_s
        return result

    by_place = places([1] * len(distinct), compare)
    results = dict(zip(distinct, by_place, strict=True))
    return [replace(results[name], cpu_s=cpu_s / len(names)) for name in names]


def places(texts: Sequence[int], compare: Compare) -> list[Comparison]:
    """The consensus on each distinct answer; `texts` and `compare` as for `classes_of`."""
    if len(texts) == 1:
        return [Comparison("unknown", "no other text passed", "consensus", 1.0)]
    classes = classes_of(texts, compare)
    majority, whole = classes.majority, sum(texts)
    results: dict[int, Comparison] = {}
    sizes = ", ".join(str(one.texts) for one in classes.by_size)
    for one in classes.by_size:
        share = one.texts / whole
        if majority is None:
            why = f"no majority: classes of {sizes} of {whole} independent texts"
            result = Comparison("unknown", why, "consensus", share)
        elif one is majority:
            why = f"behaves like {one.texts} of {whole} independent texts"
            result = Comparison("same", why, "consensus", share)
        else:
            representatives = frozenset((majority.members[0], one.members[0]))
            result = _apart(majority, whole, share, classes.apart.get(representatives))
        results.update(dict.fromkeys(one.members, result))
    for answer, why in classes.incomparable.items():
        results[answer] = Comparison("unknown", why, "consensus", 0.0)
        if majority is None:
            continue
        comparison = compare(majority.members[0], answer)
        if comparison.result == "different":
            results[answer] = _apart(majority, whole, 0.0, comparison)
    return [results[answer] for answer in range(len(texts))]


def _apart(
    majority: AnswerClass, whole: int, share: float, comparison: Comparison | None
) -> Comparison:
    """The consensus on an answer outside the majority; `comparison` with the majority, if there was one."""
    detail = f"differs from {majority.texts} of {whole} independent texts"
    if comparison is None:
        return Comparison("different", detail, "consensus", share)
    return Comparison(
        comparison.result,
        f"{detail}: {comparison.detail}",
        "consensus",
        share,
        trace=comparison.trace,
    )
