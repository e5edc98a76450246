"""The in-process backend with a trainer whose log-probabilities differ from the sampler's in the first `DRIFTS` train steps."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rtl_core.backend.base import Datum, StepResult
from tests.backend.inprocess import InProcessProvider, Wrapped

DRIFTS = [0]


class _Trainer(Wrapped):
    async def step(
        self, datums: Sequence[Datum], loss: str, parameters: Mapping[str, float], *more: Any
    ) -> StepResult:
        result = await self._inner.step(datums, loss, parameters, *more)
        if not DRIFTS[0]:
            return result
        DRIFTS[0] -= 1
        return replace(result, logprobs=[logprobs_T - 5.0 for logprobs_T in result.logprobs])


class Drifting(Wrapped):
    async def open_trainer(
        self, state_path: str | None, *, weights_only: bool = False
    ) -> _Trainer:
        return _Trainer(await self._inner.open_trainer(state_path, weights_only=weights_only))


BACKEND = InProcessProvider(lambda inner, config: Drifting(inner))
