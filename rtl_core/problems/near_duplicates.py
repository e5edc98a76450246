"""Problems on both sides of the border between train and held-out that ask for nearly the same: found, and moved.

Two problems are near-duplicates when the words that they show the model, in runs of three, overlap by 80 % or more (Jaccard),
or when their golden answers' tokens, in runs of five, overlap by 80 % (for answers of some length). The training one
moves: what is held out stays held out, whatever else a set holds.

Left alone: pairs within a generated set, such as the starter set. Its splits share no specification by construction although
all of them sound alike.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rtl_core.types.problem import Problem

TEXT_OVERLAP = 0.8
GOLDEN_OVERLAP = 0.8
MIN_GOLDEN_SHINGLES = 60
_TEXT_RUN, _GOLDEN_RUN = 3, 5
_CODE = (".v", ".sv", ".vh", ".svh", ".py")


@dataclass(frozen=True)
class NearDuplicate:
    """A training problem that was too close to a held-out one."""

    moved: str
    """Id of the training problem that moved to the held-out side."""
    like: str
    """Id of the held-out problem."""
    overlap: float
    """Share of the runs of words (or of tokens) that both have, from 0 to 1."""
    by: str
    """`text` or `golden answer`."""

    def __str__(self) -> str:
        return f"{self.moved} is held out too: its {self.by} is {self.overlap:.0%} that of {self.like}"


def separate(
    train: Sequence[Problem], heldout: Sequence[Problem]
) -> tuple[list[Problem], list[Problem], list[NearDuplicate]]:
    """(train, held-out, what was moved), each in its old order, the moved ones at the end of the held-out.

    Repeats until no pair is left across the border: a moved problem may have a near-duplicate of its own.
    """
    left, out = list(train), list(heldout)
    moved: list[NearDuplicate] = []
    fresh: Sequence[Problem] = out
    while fresh:
        found = {pair.moved: pair for pair in pairs(left, fresh)}
        fresh = [problem for problem in left if problem.id in found]
        left = [problem for problem in left if problem.id not in found]
        out += fresh
        moved += [found[problem.id] for problem in fresh]
    return left, out, moved


def pairs(train: Iterable[Problem], heldout: Iterable[Problem]) -> list[NearDuplicate]:
    """For each training problem that has a near-duplicate among the held-out ones: the closest."""
    best: dict[str, NearDuplicate] = {}
    train, heldout = list(train), list(heldout)
    set_of = {p.id: p.source for p in (*train, *heldout) if p.generated}
    for by, shingles, limit in (
        ("text", _text_shingles, TEXT_OVERLAP),
        ("golden answer", _golden_shingles, GOLDEN_OVERLAP),
    ):
        held = {p.id: shingles(p) for p in heldout}
        holders: dict[int, list[str]] = defaultdict(list)
        for problem_id, runs in held.items():
            for run in runs:
                holders[run].append(problem_id)
        for problem in train:
            own = shingles(problem)
            shared = Counter(other for run in own for other in holders.get(run, ()))
            for other, count in shared.items():
                overlap = count / (len(own) + len(held[other]) - count)
                same_set = problem.generated and set_of.get(other) == problem.source
                known = best.get(problem.id)
                if overlap >= limit and not same_set and (known is None or overlap > known.overlap):
                    best[problem.id] = NearDuplicate(problem.id, other, overlap, by)
    return list(best.values())


def _text_shingles(problem: Problem) -> set[int]:
    """Runs of words of all that the model is shown, code excepted."""
    texts = [problem.prompt, *(text for path, text in sorted(problem.context.items()) if not path.endswith(_CODE))]
    return _runs(re.findall(r"[a-z]+|\d+", "\n".join(texts).lower()), _TEXT_RUN)


def _golden_shingles(problem: Problem) -> set[int]:
    if not problem.golden:
        return set()
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", "\n".join(problem.golden.values()), flags=re.S)
    runs = _runs(re.findall(r"\w+|[^\w\s]", text), _GOLDEN_RUN)
    return runs if len(runs) >= MIN_GOLDEN_SHINGLES else set()


def _runs(words: list[str], length: int) -> set[int]:
    if len(words) < length:
        return {hash(tuple(words))} if words else set()
    return {hash(tuple(words[i : i + length])) for i in range(len(words) - length + 1)}
