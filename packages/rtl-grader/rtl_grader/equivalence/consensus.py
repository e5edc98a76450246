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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rtl_grader.equivalence import differential
from rtl_grader.equivalence.pair import Comparison
from rtl_grader.equivalence.side_by_side import Effort, Trace
from rtl_grader.grading.executors.base import Executor
from rtl_grader.grading.limits import Limits
from rtl_grader.hdl.text import compact
from rtl_grader.types.problem import Problem

MAX_CLASSES = 8
"""Largest number of classes that an answer is compared with, the largest first; very different answers say
little about each other."""

MANY, AHEAD = 4, 3
"""A class of at least MANY texts, and AHEAD times as many as the next one, is the majority even without
half of all texts."""

Files = Mapping[str, str]
Words = tuple[tuple[str, str], ...]
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

    found: list[AnswerClass]
    """The largest first."""
    without: dict[int, str]
    """Answers that cannot even be compared with themselves -> reason."""
    apart: dict[frozenset[int], Comparison]
    """How the representatives of two classes differ."""

    @property
    def majority(self) -> AnswerClass | None:
        """The class with more than half of the comparable independent texts, or with by far the most."""
        first, second = [*self.found, AnswerClass(), AnswerClass()][:2]
        most = 2 * first.texts > sum(one.texts for one in self.found)
        far = first.texts >= MANY and first.texts >= AHEAD * second.texts
        return first if first.texts > 1 and (most or far) else None


def classes_of(texts: Sequence[int], compare: Compare) -> Classes:
    """The classes of distinct answers.

    Args:
        texts: number of independent texts of each distinct answer.
        compare: called as rarely as possible.
    """
    found: list[AnswerClass] = []
    without: dict[int, str] = {}
    apart: dict[frozenset[int], Comparison] = {}
    for answer in sorted(range(len(texts)), key=lambda i: -texts[i]):
        itself = compare(answer, answer)
        if not itself.agrees:
            without[answer] = itself.detail
            continue
        for one in sorted(found, key=lambda c: -c.texts)[:MAX_CLASSES]:
            told = compare(one.members[0], answer)
            told = compare(answer, one.members[0]) if told.agrees else told  # both ways
            if told.agrees:
                one.members.append(answer)
                one.texts += texts[answer]
                break
            apart[frozenset((one.members[0], answer))] = told
        else:
            found.append(AnswerClass([answer], texts[answer]))
    return Classes(sorted(found, key=lambda c: -c.texts), without, apart)


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
    names = [words_of(files) for files in answers]
    texts = dict(zip(reversed(names), reversed(answers), strict=True))
    distinct = list(texts)
    spent: list[float] = []

    def held(golden: int, other: int) -> Comparison:
        one, two = texts[distinct[golden]], texts[distinct[other]]
        found = differential.compare(
            executor, as_golden(one), one, two, limits, effort, True, driven
        )
        spent.append(found.cpu_s)
        return found

    found = dict(zip(distinct, places([1] * len(distinct), held), strict=True))
    return [replace(found[name], cpu_s=sum(spent) / len(answers)) for name in names]


def places(texts: Sequence[int], compare: Compare) -> list[Comparison]:
    """The consensus on each distinct answer; `texts` and `compare` as for `classes_of`."""
    if len(texts) == 1:
        return [Comparison("unknown", "no other text passed", "consensus", 1.0)]
    classes = classes_of(texts, compare)
    majority, whole = classes.majority, sum(texts)
    found: dict[int, Comparison] = {}
    sizes = ", ".join(str(one.texts) for one in classes.found)
    for one in classes.found:
        share = one.texts / whole
        for answer in one.members:
            if majority is None:
                why = f"no majority: classes of {sizes} of {whole} independent texts"
                found[answer] = Comparison("unknown", why, "consensus", share)
            elif one is majority:
                why = f"behaves like {one.texts} of {whole} independent texts"
                found[answer] = Comparison("same", why, "consensus", share)
            else:
                told = classes.apart.get(frozenset((majority.members[0], one.members[0])))
                found[answer] = _apart(majority, whole, share, told)
    for answer, why in classes.without.items():
        found[answer] = Comparison("unknown", why, "consensus", 0.0)
        if (
            majority is not None
            and (told := compare(majority.members[0], answer)).result == "different"
        ):
            found[answer] = _apart(majority, whole, 0.0, told)
    return [found[i] for i in range(len(texts))]


def words_of(files: Files) -> Words:
    """(path, text without comments and with single spaces) of each file, which is the same for two copies."""
    return tuple(sorted((path, compact(text)) for path, text in files.items()))


def _apart(majority: AnswerClass, whole: int, share: float, told: Comparison | None) -> Comparison:
    detail = f"differs from {majority.texts} of {whole} independent texts" + (
        f": {told.detail}" if told else ""
    )
    return Comparison(
        told.result if told else "different",
        detail,
        "consensus",
        share,
        trace=told.trace if told else (),
    )
