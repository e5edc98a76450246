"""Filters of the KL by token. Each filter is 1 or 0 for each token; the KL of a token is multiplied by all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from difflib import SequenceMatcher

import numpy as np
from numpy.typing import NDArray

from rtl_core.learning.kl import FloatArray


def unsure(student_T: FloatArray, below: float | None) -> NDArray[np.float64]:
    """`1[exp(s_t) < below]` for the student's log-probabilities s_t of its sampled tokens; 1 everywhere if `below` is None.

    The sampled token's probability replaces the entropy of the position, which samplers do not report; the mean of −s_t is the entropy.
    """
    if below is None:
        return np.ones(len(student_T))
    return (np.asarray(student_T) < math.log(below)).astype(np.float64)


def first_wrong_line(lines: Sequence[str], passing: Sequence[Sequence[str]]) -> int:
    """Index of the first line of a failed answer that its nearest passing sibling does not have; 0 without a sibling.

    The nearest sibling has the largest ratio of equal lines, 2 M / (a + b), with M lines in common order of a and b; a line is right if
    it is one of those M. If no line is wrong (something is missing at the end), the result is the last line.
    """
    matchers = [SequenceMatcher(None, lines, other, autojunk=False) for other in passing]
    if not matchers:
        return 0
    nearest = max(matchers, key=lambda matcher: matcher.ratio())
    right = {at for block in nearest.get_matching_blocks() for at in range(block.a, block.a + block.size)}
    return min(set(range(len(lines))) - right, default=max(len(lines) - 1, 0))
