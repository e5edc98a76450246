"""Which answers to one problem behave alike, where no golden answer says which of them is right.

Answers with the same outputs on all inputs that were tried form a class. A class that holds most of the independent texts is the
majority; an answer outside it is doubtful, or the specification leaves open what it does. What all answers do wrong is found by nobody.

Two answers are told apart as an answer is told from a golden one (`rtl_core.equivalence.differential`), in both directions, because what
one of them leaves unknown (X) the other may fill. A difference in outputs alone that a valid-like output declares invalid, or one that
is a constant number of clock cycles, is told as such: the two are `alike but for` it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rtl_core.equivalence.pair import Comparison, Result
from rtl_core.equivalence.side_by_side import Trace

MAX_CLASSES = 8
"""An answer is held against so many classes, the largest first; answers of all kinds tell little of each other."""

Compare = Callable[[int, int], Comparison]
"""Holds answer `other` against answer `golden`, by their places in the list."""


@dataclass
class AnswerClass:
    """Answers that behave alike."""

    members: list[int] = field(default_factory=list)
    """Places in the list of distinct answers; the first stands for the class."""
    texts: int = 0
    """Independent texts that hold them."""


@dataclass(frozen=True)
class Place:
    """What consensus says of one answer."""

    result: Result
    """`same`: in the majority; `different`: outside it; `unknown`: there is no majority, or it cannot be compared."""
    share: float
    """Share of the independent texts that are in its class."""
    detail: str
    trace: Trace = ()


def classes_of(
    texts: Sequence[int], compare: Compare
) -> tuple[list[AnswerClass], dict[int, str], dict[tuple[int, int], Comparison]]:
    """(classes, the largest first; why others belong to none; what separates the first answers of two classes).

    Args:
        texts: for each distinct answer how many independent texts hold it.
        compare: called as seldom as possible.
    """
    classes: list[AnswerClass] = []
    apart: dict[tuple[int, int], Comparison] = {}
    without: dict[int, str] = {}
    for answer in sorted(range(len(texts)), key=lambda i: -texts[i]):
        why = ""
        for one in sorted(classes, key=lambda c: -c.texts)[:MAX_CLASSES]:
            told = _both_ways(one.members[0], answer, compare)
            if told.agrees:
                one.members.append(answer)
                one.texts += texts[answer]
                break
            apart[one.members[0], answer] = told
            why = why or (told.detail if told.result == "unknown" else "")
        else:
            if why:
                without[answer] = why
            else:
                classes.append(AnswerClass([answer], texts[answer]))
    return sorted(classes, key=lambda c: -c.texts), without, apart


def places(texts: Sequence[int], compare: Compare) -> list[Place]:
    """What consensus says of each distinct answer; `texts` and `compare` as for `classes_of`."""
    classes, without, apart = classes_of(texts, compare)
    whole = sum(texts)
    found: dict[int, Place] = {i: Place("unknown", 0.0, why) for i, why in without.items()}
    majority = classes[0] if classes and 2 * classes[0].texts > whole and classes[0].texts > 1 else None
    sizes = ", ".join(str(one.texts) for one in classes)
    for one in classes:
        share = one.texts / whole
        for answer in one.members:
            if majority is None:
                found[answer] = Place("unknown", share, f"no majority: classes of {sizes} of {whole} independent texts")
            elif one is majority:
                found[answer] = Place("same", share, f"behaves like {one.texts} of {whole} independent texts")
            else:
                told = apart.get((majority.members[0], one.members[0])) or Comparison("different", "")
                detail = f"differs from {majority.texts} of {whole} independent texts: {told.detail}"
                found[answer] = Place("different", share, detail, told.trace)
    return [found[i] for i in range(len(texts))]


def _both_ways(one: int, other: int, compare: Compare) -> Comparison:
    told = compare(one, other)
    return compare(other, one) if told.agrees else told
