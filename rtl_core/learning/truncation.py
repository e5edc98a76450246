"""Answers that were cut at the token limit: what their reward says is the limit's doing as much as theirs.

Three ways: `keep` takes the reward as it is; `mask` leaves such an answer out, of the baseline and of the loss; `penalise` takes
off a penalty that grows over a buffer before the limit, so that length itself is taught before the cut comes:

    0                                    length ≤ limit − buffer
    p (length − (limit − buffer)) / buffer    in between
    p                                    cut

Source: DAPO (Yu et al. 2025, arXiv:2503.14476), "overlong filtering" and "soft overlong punishment" (section 3.4), there with p = 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Truncated = Literal["keep", "mask", "penalise"]


def overlong_penalty(
    lengths_G: Sequence[int], cut_G: Sequence[bool], *, limit: int, buffer: int, penalty: float
) -> NDArray[np.float64]:
    """Penalty of each of G answers, from 0 to `penalty`.

    Args:
        lengths_G: tokens of each completion.
        cut_G: whether it was cut at the limit.
        limit: the longest completion allowed, in tokens.
        buffer: over how many tokens before the limit the penalty rises; 0 penalises cut answers alone.
        penalty: what a cut answer loses, in units of reward.

    Raises:
        ValueError: the buffer is longer than the limit, or the vectors differ in length.
    """
    if len(lengths_G) != len(cut_G):
        raise ValueError(f"{len(lengths_G)} lengths but {len(cut_G)} marks of cut answers")
    if not 0 <= buffer <= limit:
        raise ValueError(f"a buffer of {buffer} tokens does not fit a limit of {limit}")
    over_G = np.asarray(lengths_G, np.float64) - (limit - buffer)
    share_G = np.clip(over_G / buffer, 0.0, 1.0) if buffer else np.zeros(len(lengths_G))
    return penalty * np.where(np.asarray(cut_G, bool), 1.0, share_G)
