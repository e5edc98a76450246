"""The in-process backend, which notes what it is asked to sample, to score and to train on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtl_core.backend.base import Adam, Backend, Checkpoint, Datum, SampledAnswer, StepResult, Trainer, Weights
from rtl_core.config import RunConfig
from tests.backend.inprocess import InProcess, InProcessProvider, opened

SAMPLED: list[tuple[Weights, tuple[int, ...]]] = []
"""Weights and prompt of each request."""
SCORED: list[tuple[Weights, tuple[int, ...], tuple[int, ...]]] = []
"""Weights, prompt and completion of each request."""
TRAINED: list[tuple[str, Datum]] = []
"""Loss and datum, in order."""


class _Trainer:
    def __init__(self, inner: Trainer) -> None:
        self._inner = inner

    async def step(self, datums: Sequence[Datum], loss: str, parameters: Mapping[str, float], adam: Adam) -> StepResult:
        TRAINED.extend((loss, datum) for datum in datums)
        return await self._inner.step(datums, loss, parameters, adam)

    async def logprobs(self, datums: Sequence[Datum]) -> list[NDArray[np.float64]]:
        return await self._inner.logprobs(datums)

    async def save(self, name: str, ttl_s: int | None) -> Checkpoint:
        return await self._inner.save(name, ttl_s)


class Recording:
    def __init__(self, inner: InProcess) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def sample(
        self, weights: Weights, prompt_P: Sequence[int], count: int, *asked: Any, **more: Any
    ) -> list[SampledAnswer]:
        SAMPLED.append((weights, tuple(prompt_P)))
        return await self._inner.sample(weights, prompt_P, count, *asked, **more)

    async def logprobs(self, weights: Weights, prompt_P: Sequence[int], tokens_T: Sequence[int]) -> NDArray[np.float32]:
        SCORED.append((weights, tuple(prompt_P), tuple(tokens_T)))
        return await self._inner.logprobs(weights, prompt_P, tokens_T)

    async def open_trainer(self, state_path: str | None, *, weights_only: bool = False) -> _Trainer:
        return _Trainer(await self._inner.open_trainer(state_path, weights_only=weights_only))


class RecordingProvider(InProcessProvider):
    def open(self, config: RunConfig, tell: Callable[[str], None]) -> AbstractAsyncContextManager[Backend]:
        return _opened(config)


@asynccontextmanager
async def _opened(config: RunConfig) -> AsyncIterator[Any]:
    for noted in (SAMPLED, SCORED, TRAINED):
        noted.clear()
    async with opened(config) as inner:
        yield Recording(inner)  # type: ignore[arg-type]


BACKEND = RecordingProvider()
