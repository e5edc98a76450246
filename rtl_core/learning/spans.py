"""Spans: two tokenisations of one text, aligned where both have a boundary, and scores of spans as scores of tokens.

A span is the text between two neighbouring positions at which a token of the student and a token of the teacher
end. With log-probabilities s_i of the student's m tokens of a span and q_j of the teacher's n tokens, the reverse KL
of the span is `K = Σ s_i − Σ q_j`. It is given to the student's tokens as teacher's log-probabilities:

    q'_i = s_i − K w_i,  w_i = s_i / Σ s      (m > 1; w_i = 1/m where the student was certain: Σ s = 0)
    q'_1 = Σ q_j                              (m = 1; with n = 1 the teacher's own value)

So `Σ (s_i − q'_i) = K`, and of a word that the student writes in two tokens, the one at which it had a choice is
charged. Equal tokenisations give the teacher's own scores. Tokens outside every span have q' = s: no KL.

Source: spans with equal text, as in TRL's GOLD and NeMo RL's x-token distillation, there for distributions.

Shapes: T tokens of the student, U of the teacher, S spans.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from rtl_core.learning.kl import FloatArray
from rtl_core.types.numbers import Bools, Floats

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
"""What a decoder puts in place of bytes that are no text; it may stand for different bytes."""
WINDOW = 128
"""Words of two texts that are compared at a time between anchors, so that the time is linear in their length."""
ANCHOR = 8
"""Words in a row that both texts have once."""
_WORD = re.compile(r"\w+|\W")
SpanArray = NDArray[np.int32]
"""(S, 4): first and end of a span's tokens, of the student and of the teacher, as half-open ranges."""
NO_SPANS: SpanArray = np.zeros((0, 4), np.int32)


@dataclass(frozen=True)
class Tokenised:
    """A text and where its tokens end: the offset in characters after each token; −1 within a character."""

    text: str
    ends: tuple[int, ...]

    def boundaries(self, start: int = 0, stop: int | None = None) -> dict[int, int]:
        """Mapping of offset, relative to `start`, to the number of tokens before it. Tokens without text belong to
        the token before them."""
        stop = len(self.text) if stop is None else stop
        cuts = {0: 0, **{end: number for number, end in enumerate(self.ends, 1) if end > 0}}
        return {at - start: number for at, number in cuts.items() if start <= at <= stop}


def align(
    student: Tokenised, teacher: Tokenised, start: int = 0, stop: int | None = None
) -> SpanArray:
    """Return the spans of the student's text from `start` to `stop` (characters), which the teacher's whole text
    repeats, in order.

    A passage that the teacher's tokenizer changed (its text differs) or that is not text is in no span.
    """
    text, read = student.text[start:stop], teacher.text
    of_student, of_teacher = student.boundaries(start, stop), teacher.boundaries()
    cuts = []
    for at, there in _equal_places(text, read):
        if at in of_student and there in of_teacher:
            cuts.append((at, there, of_student[at], of_teacher[there]))
    spans = []
    for (at, there, t, u), (next_at, next_there, next_t, next_u) in pairwise(cuts):
        passage = text[at:next_at]
        if passage == read[there:next_there] and passage and REPLACEMENT not in passage:
            spans.append((t, next_t, u, next_u))
    return np.array(spans, np.int32).reshape(-1, 4)


def _equal_places(text: str, read: str) -> Iterator[tuple[int, int]]:
    """Yield places of equal passages in both texts, edges included, each place of `text` once, in order."""
    last = -1
    for at, there, size in _equal_passages(text, read):
        for offset in range(size + 1):
            if at + offset > last:
                last = at + offset
                yield last, there + offset


def _equal_passages(text: str, read: str) -> Iterator[tuple[int, int, int]]:
    """Yield (place, place, length) of equal passages: the common beginning, and equal words behind the first change."""
    same = shared_prefix(text, read)
    yield 0, 0, same
    words, other = _WORD.findall(text[same:]), _WORD.findall(read[same:])
    at, there = (list(accumulate(map(len, row), initial=same)) for row in (words, other))
    for a, b, count in _equal_words(words, other):
        yield at[a], there[b], at[a + count] - at[a]


def shared_prefix(one: str, other: str) -> int:
    """Length of the common beginning of two texts."""
    letters = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in letters if a != b), min(len(one), len(other)))


def _equal_words(words: list[str], other: list[str]) -> Iterator[tuple[int, int, int]]:
    """Yield (place, place, number) of equal words in order: anchors, and what is equal between them."""
    a = b = 0
    for at, there in [*_anchors(words, other), (len(words), len(other))]:
        for x, y, count in _by_window(words[a:at], other[b:there]):
            yield a + x, b + y, count
        yield at, there, int(at < len(words))
        a, b = at + 1, there + 1


def _anchors(words: list[str], other: list[str]) -> list[tuple[int, int]]:
    """Places of anchors in both texts, in order."""
    ours, theirs = _single(words), _single(other)
    shared = [passage for passage in ours if passage in theirs]
    # Each passage is there once, so that the time is linear as long as their order is the same.
    matcher = SequenceMatcher(None, shared, sorted(shared, key=theirs.__getitem__), False)
    anchors = []
    for start, _, size in matcher.get_matching_blocks():
        for passage in shared[start : start + size]:
            anchors.append((ours[passage], theirs[passage]))
    return anchors


def _single(words: list[str]) -> dict[tuple[str, ...], int]:
    """Places of the passages of `ANCHOR` words that a text has once, in order."""
    passages = [tuple(words[at : at + ANCHOR]) for at in range(len(words) - ANCHOR + 1)]
    counts = Counter(passages)
    return {passage: at for at, passage in enumerate(passages) if counts[passage] == 1}


def _by_window(words: list[str], other: list[str]) -> Iterator[tuple[int, int, int]]:
    """Yield (place, place, number) of equal words in order. A window begins behind the last equal words that begin in
    the first half of the one before it."""
    a = b = 0
    while a < len(words) and b < len(other):
        parts = words[a : a + WINDOW], other[b : b + WINDOW]
        is_last = a + WINDOW >= len(words) and b + WINDOW >= len(other)
        next_a, next_b = a + WINDOW // 2, b + WINDOW // 2
        matcher = SequenceMatcher(None, *parts, autojunk=False)
        for x, y, count in matcher.get_matching_blocks():
            if count and (is_last or x < WINDOW // 2):
                yield a + x, b + y, count
                next_a, next_b = a + x + count, b + y + count
        if is_last:
            return
        a, b = next_a, next_b


def token_scores(student_T: FloatArray, teacher_U: FloatArray, spans_S4: SpanArray) -> Floats:
    """Return q' of the student's T tokens, by the formulas above.

    Args:
        student_T: log-probabilities of the student's tokens under the policy that sampled them.
        teacher_U: the teacher's log-probabilities of its U tokens.
    """
    scores_T = np.array(student_T, np.float64)
    read_U = np.asarray(teacher_U, np.float64)
    for t, t_end, u, u_end in spans_S4.tolist():
        score = read_U[u:u_end].sum()
        if t_end == t + 1:
            scores_T[t] = score
            continue
        own = scores_T[t:t_end].copy()
        charged = np.minimum(own, 0)  # a value above 0 is rounding
        total = charged.sum()
        share = charged / total if total < 0 else np.full(len(own), 1 / len(own))
        scores_T[t:t_end] = own - (own.sum() - score) * share
    return scores_T


def heard_T(spans_S4: SpanArray, count: int) -> Bools:
    """True at those of `count` tokens of the student that are in a span."""
    heard = np.zeros(count, bool)
    for t, t_end, _, _ in spans_S4.tolist():
        heard[t:t_end] = True
    return heard


def one_to_one(spans_S4: SpanArray) -> int:
    """Number of spans with one token on both sides."""
    sizes = spans_S4[:, 1::2] - spans_S4[:, ::2]
    return int((sizes == 1).all(axis=1).sum())
