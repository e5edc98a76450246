"""Sampling groups of answers from a Tinker sampling client."""

from __future__ import annotations

import asyncio
import hashlib
import math
from dataclasses import dataclass
from typing import Any, Literal

from tinker import types

from rtl_core.errors import PolicyError


@dataclass(frozen=True)
class SampledAnswer:
    """One completion: its T tokens (the stop token included), the sampler's log-probabilities of them, and its text."""

    tokens_T: list[int]
    logprobs_T: list[float]
    stop_reason: Literal["stop", "length"]
    text: str


def rollout_seed(*parts: object) -> int:
    """A 31-bit seed that depends on all parts (run seed, step, problem, sample ...) and on nothing else."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


async def sample_group(
    client: Any,
    tokenizer: Any,
    prompt_P: list[int],
    *,
    group_size: int,
    max_tokens: int,
    temperature: float,
    seeds: list[int] | None = None,
) -> list[SampledAnswer]:
    """`group_size` independent answers to one prompt.

    With `seeds` (one per answer) each answer is a request of its own: a seed shared by several samples of one request gives
    identical samples. No timeout and no retry here: the SDK has both, and a capacity pause can last hours.
    """
    prompt = types.ModelInput.from_ints(prompt_P)

    def params(seed: int | None) -> types.SamplingParams:
        return types.SamplingParams(
            max_tokens=max_tokens, temperature=temperature, top_p=1.0, seed=seed, stop=[tokenizer.eos_token_id]
        )

    if seeds is None:
        responses = [await client.sample(prompt=prompt, num_samples=group_size, sampling_params=params(None))]
    else:
        requests = [client.sample(prompt=prompt, num_samples=1, sampling_params=params(seed)) for seed in seeds]
        responses = await asyncio.gather(*(request.coroutine() for request in requests))
    return [_answer(sequence, tokenizer) for response in responses for sequence in response.sequences]


def _answer(sequence: Any, tokenizer: Any) -> SampledAnswer:
    tokens_T, logprobs_T = list(sequence.tokens), sequence.logprobs
    if logprobs_T is None or len(logprobs_T) != len(tokens_T) or not all(map(math.isfinite, logprobs_T)):
        raise PolicyError("the service returned a sample without a finite log-probability for each of its tokens")
    ended = bool(tokens_T) and tokens_T[-1] == tokenizer.eos_token_id
    text = tokenizer.decode(tokens_T[:-1] if ended else tokens_T)
    stop_reason: Literal["stop", "length"] = "stop" if str(sequence.stop_reason) == "stop" or ended else "length"
    return SampledAnswer(tokens_T, list(logprobs_T), stop_reason, text)
