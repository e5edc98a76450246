"""Samples and scores from a Tinker sampling client."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import tinker
from numpy.typing import NDArray
from tinker import types

from rtl_core.backend.base import SampledAnswer, checked_scores
from rtl_core.types.tokenizer import Tokenizer


async def sample_group(
    client: tinker.SamplingClient,
    tokenizer: Tokenizer,
    prompt_P: Sequence[int],
    count: int,
    *,
    max_tokens: int,
    temperature: float,
    seeds: Sequence[int] | None,
) -> list[SampledAnswer]:
    """`count` independent answers to one prompt.

    With `seeds` (one per answer) each answer is a request of its own: a seed shared by several samples of one request gives
    identical samples. No timeout and no retry here: the SDK has both, and a capacity pause can last hours.
    """
    prompt = types.ModelInput.from_ints(list(prompt_P))

    def params(seed: int | None) -> types.SamplingParams:
        return types.SamplingParams(
            max_tokens=max_tokens, temperature=temperature, top_p=1.0, seed=seed, stop=[tokenizer.eos_token_id]
        )

    if seeds is None:
        responses = [await client.sample(prompt=prompt, num_samples=count, sampling_params=params(None))]
    else:
        requests = [client.sample(prompt=prompt, num_samples=1, sampling_params=params(seed)) for seed in seeds]
        responses = await asyncio.gather(*(request.coroutine() for request in requests))
    return [
        SampledAnswer.of(list(one.tokens), one.logprobs, str(one.stop_reason) == "stop", tokenizer)
        for response in responses
        for one in response.sequences
    ]


async def score(client: tinker.SamplingClient, prompt_P: Sequence[int], tokens_T: Sequence[int]) -> NDArray[np.float32]:
    """Log-probability of each of the T tokens after prompt and predecessors.

    Scores the completion alone (`prompt_logprobs_last_n`), so that a cached prompt is not paid twice.
    """
    full = types.ModelInput.from_ints([*prompt_P, *tokens_T])
    values = await client.compute_logprobs(full, prompt_logprobs_last_n=len(tokens_T))
    return checked_scores(values[-len(tokens_T) :], len(tokens_T))
