"""The in-process backend, whose trainer contradicts the sampler in the first `DRIFTS` train steps that it is asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any

from rtl_core.backend.base import Adam, Backend, Datum, StepResult, Trainer
from rtl_core.config import RunConfig
from tests.backend.inprocess import InProcess, InProcessProvider, opened

DRIFTS = [0]


class _Trainer:
    def __init__(self, inner: Trainer) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def step(self, datums: Sequence[Datum], loss: str, parameters: Mapping[str, float], adam: Adam) -> StepResult:
        result = await self._inner.step(datums, loss, parameters, adam)
        if not DRIFTS[0]:
            return result
        DRIFTS[0] -= 1
        return replace(result, logprobs=[logprobs_T - 5.0 for logprobs_T in result.logprobs])


class Drifting:
    def __init__(self, inner: InProcess) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def open_trainer(self, state_path: str | None, *, weights_only: bool = False) -> Any:
        return _Trainer(await self._inner.open_trainer(state_path, weights_only=weights_only))


class DriftingProvider(InProcessProvider):
    def open(self, config: RunConfig, tell: Callable[[str], None]) -> AbstractAsyncContextManager[Backend]:
        return _opened(config)


@asynccontextmanager
async def _opened(config: RunConfig) -> AsyncIterator[Any]:
    async with opened(config) as inner:
        yield Drifting(inner)


BACKEND = DriftingProvider()
