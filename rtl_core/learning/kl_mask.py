"""Where in an answer the teacher is heard: which tokens have a KL. Each filter is 1 or 0 for each token; a token is charged their product."""

from __future__ import annotations

import math
from collections.abc import Sequence
from difflib import SequenceMatcher

import numpy as np
from numpy.typing import NDArray

from rtl_core.learning.kl import FloatArray


def unsure(student_T: FloatArray, below: float | None) -> NDArray[np.float64]:
    """Where the student was unsure: `1[exp(s_t) < below]`, s_t its log-probability of the token that it sampled; None: everywhere.

    The bar is on the sampled token and not on the entropy of the position, since a sampler tells the former alone; −s_t has the
    entropy as its mean.
    """
    if below is None:
        return np.ones(len(student_T))
    return (np.asarray(student_T) < math.log(below)).astype(np.float64)


def first_wrong_line(lines: Sequence[str], passing: Sequence[Sequence[str]]) -> int:
    """The first line of a failed answer that its nearest passing sibling does not have, as an index into `lines`; 0 without a sibling.

    Nearest is the sibling with the largest ratio of equal lines, 2 M / (a + b), M lines in common order of a and b; a line is right if it
    is one of those M. Without a wrong line (something is missing at the end) it is the last one.
    """
    matchers = [SequenceMatcher(None, lines, other, autojunk=False) for other in passing]
    if not matchers:
        return 0
    nearest = max(matchers, key=lambda matcher: matcher.ratio())
    right = {at for block in nearest.get_matching_blocks() for at in range(block.a, block.a + block.size)}
    return min(set(range(len(lines))) - right, default=max(len(lines) - 1, 0))
