"""The in-process backend by a script: it notes what it is asked for, and a test says what it answers instead.

Selected with `backend.name = "tests.backend.scripted:BACKEND"`; the fixture `script` of tests/flows holds its script.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtl_core.backend.base import Datum, Readiness, SampledAnswer, StepResult, Weights
from rtl_core.config import RunConfig
from tests.backend.inprocess import InProcess, InProcessProvider, Wrapped


async def as_it_is(inner: InProcess, *asked: Any, **more: Any) -> list[SampledAnswer]:
    return await inner.sample(*asked, **more)


@dataclass
class Script:
    sample: Callable[..., Awaitable[list[SampledAnswer]]] = as_it_is
    """Answers in place of the backend: (backend, weights, prompt, count, params, ...)."""
    trained_as: Callable[[StepResult], StepResult] = lambda result: result
    """Changes the result of a train step."""
    sampled: list[dict[str, Any]] = field(default_factory=list)
    """Weights, prompt, count and parameters of each sampling request."""
    scored: list[tuple[Weights, tuple[int, ...], tuple[int, ...]]] = field(default_factory=list)
    """Weights, prompt and completion of each scoring request."""
    trained: list[tuple[str, Datum]] = field(default_factory=list)
    """Loss and datum, in order."""
    kept: list[str] = field(default_factory=list)
    """Paths of weights whose expiry was removed."""


SCRIPT = Script()


class _Trainer(Wrapped):
    async def step(
        self, datums: Sequence[Datum], loss: str, parameters: Mapping[str, float], *more: Any
    ) -> StepResult:
        SCRIPT.trained.extend((loss, datum) for datum in datums)
        return SCRIPT.trained_as(await self._inner.step(datums, loss, parameters, *more))


class Scripted(Wrapped):
    async def sample(
        self, weights: Weights, prompt_P: Sequence[int], count: int, params: Any, **more: Any
    ) -> list[SampledAnswer]:
        asked = {"weights": weights, "prompt": tuple(prompt_P), "count": count}
        SCRIPT.sampled.append({**asked, **vars(params), **more})
        return await SCRIPT.sample(self._inner, weights, prompt_P, count, params, **more)

    async def logprobs(
        self, weights: Weights, prompt_P: Sequence[int], tokens_T: Sequence[int]
    ) -> NDArray[np.float32]:
        SCRIPT.scored.append((weights, tuple(prompt_P), tuple(tokens_T)))
        return await self._inner.logprobs(weights, prompt_P, tokens_T)

    async def open_trainer(
        self, state_path: str | None, *, weights_only: bool = False
    ) -> _Trainer:
        return _Trainer(await self._inner.open_trainer(state_path, weights_only=weights_only))

    async def keep(self, paths: Sequence[str]) -> None:
        SCRIPT.kept.extend(paths)
        await self._inner.keep(paths)


class ScriptedProvider(InProcessProvider):
    async def check(self, config: RunConfig) -> Readiness:
        """`backend.options` may set the student's `context`, or say that it is unknown (0)."""
        found = await super().check(config)
        limit = config.backend.options.get("context")
        if limit is None:
            return found
        return replace(found, context={config.tinker.student: int(limit)} if limit else {})


BACKEND = ScriptedProvider(lambda inner, config: Scripted(inner))
