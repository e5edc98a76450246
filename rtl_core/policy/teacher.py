"""The teacher's log-probabilities of what the student wrote."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from tinker import types

from rtl_core.errors import PolicyError


async def teacher_logprobs(client: Any, prompt_P: list[int], tokens_T: list[int]) -> NDArray[np.float32]:
    """Log-probability that the teacher gives each of the T completion tokens after prompt and predecessors.

    Scores the completion alone (`prompt_logprobs_last_n`), so that a cached prompt is not paid twice.

    Raises:
        PolicyError: the service returned no finite number for one of the tokens.
    """
    full = types.ModelInput.from_ints([*prompt_P, *tokens_T])
    values = (await client.compute_logprobs(full, prompt_logprobs_last_n=len(tokens_T)))[-len(tokens_T) :]
    scores_T = np.array([np.nan if value is None else value for value in values], np.float32)
    if scores_T.shape != (len(tokens_T),) or not np.isfinite(scores_T).all():
        raise PolicyError(f"the teacher scored {int(np.isfinite(scores_T).sum())} of {len(tokens_T)} tokens")
    return scores_T
