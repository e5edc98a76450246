"""The in-process backend with a sampler that reports wrong log-probabilities of right tokens."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from rtl_core.backend.base import SampledAnswer, Weights
from tests.backend.inprocess import InProcessProvider, Wrapped

FAULT: list[Callable[[list[float]], list[float]]] = [list]
"""What the sampler reports in place of an answer's log-probabilities."""


class Wrong(Wrapped):
    async def sample(
        self, weights: Weights, prompt_P: Sequence[int], count: int, *asked: Any, **more: Any
    ) -> list[SampledAnswer]:
        answers = await self._inner.sample(weights, prompt_P, count, *asked, **more)
        return [replace(answer, logprobs_T=FAULT[0](answer.logprobs_T)) for answer in answers]


BACKEND = InProcessProvider(lambda inner, config: Wrong(inner))
