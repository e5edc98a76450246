"""The in-process backend, with a record of what it samples, scores and trains on."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtl_core.backend.base import Datum, SampledAnswer, StepResult, Weights
from tests.backend.inprocess import InProcess, InProcessProvider, Wrapped

SAMPLED: list[tuple[Weights, tuple[int, ...]]] = []
"""Weights and prompt of each sampling request."""
SCORED: list[tuple[Weights, tuple[int, ...], tuple[int, ...]]] = []
"""Weights, prompt and completion of each scoring request."""
TRAINED: list[tuple[str, Datum]] = []
"""Loss and datum, in order."""


class _Trainer(Wrapped):
    async def step(
        self, datums: Sequence[Datum], loss: str, parameters: Mapping[str, float], *more: Any
    ) -> StepResult:
        TRAINED.extend((loss, datum) for datum in datums)
        return await self._inner.step(datums, loss, parameters, *more)


class Recording(Wrapped):
    def __init__(self, inner: InProcess) -> None:
        super().__init__(inner)
        for record in (SAMPLED, SCORED, TRAINED):
            record.clear()

    async def sample(
        self, weights: Weights, prompt_P: Sequence[int], count: int, *asked: Any, **more: Any
    ) -> list[SampledAnswer]:
        SAMPLED.append((weights, tuple(prompt_P)))
        return await self._inner.sample(weights, prompt_P, count, *asked, **more)

    async def logprobs(
        self, weights: Weights, prompt_P: Sequence[int], tokens_T: Sequence[int]
    ) -> NDArray[np.float32]:
        SCORED.append((weights, tuple(prompt_P), tuple(tokens_T)))
        return await self._inner.logprobs(weights, prompt_P, tokens_T)

    async def open_trainer(
        self, state_path: str | None, *, weights_only: bool = False
    ) -> _Trainer:
        return _Trainer(await self._inner.open_trainer(state_path, weights_only=weights_only))


BACKEND = InProcessProvider(lambda inner, config: Recording(inner))
