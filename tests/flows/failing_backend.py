"""The in-process backend, which refuses to sample from weights whose path ends as one of `REFUSED`."""

from collections.abc import Sequence
from typing import Any

from rtl_core.backend.base import SampledAnswer, Weights
from rtl_core.errors import PolicyError
from tests.backend.inprocess import InProcessProvider, Wrapped

REFUSED: list[str] = []
KEPT: list[str] = []
"""Paths of weights whose expiry was removed."""


class Failing(Wrapped):
    async def sample(
        self, weights: Weights, *given: Any, **more: Any
    ) -> Sequence[SampledAnswer]:
        if (weights.path or "").endswith(tuple(REFUSED)):
            raise PolicyError("the service refuses these weights")
        return await self._inner.sample(weights, *given, **more)

    async def keep(self, paths: Sequence[str]) -> None:
        KEPT.extend(paths)
        await self._inner.keep(paths)


BACKEND = InProcessProvider(lambda inner, config: Failing(inner))
