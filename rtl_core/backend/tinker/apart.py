"""Student and teachers on two services: each request goes to the one that serves its weights."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtl_core.backend.base import Backend, SampledAnswer, Saved, Trainer, Weights
from rtl_core.config import RunConfig
from rtl_core.errors import RtlDistillError


class TwoServices:
    """See `Backend`. Each service has sessions, clients and a key of its own, and what fails on one leaves the other's alone."""

    def __init__(self, student: Backend, teacher: Backend, config: RunConfig) -> None:
        self.tokenizer = student.tokenizer
        self._student, self._teacher, self._config = student, teacher, config

    async def sample(self, weights: Weights, prompt_P: Sequence[int], count: int, **asked: Any) -> list[SampledAnswer]:
        if weights.policy == "student":
            return await self._student.sample(weights, prompt_P, count, **asked)
        with _of_teacher():
            return await self._teacher.sample(weights, prompt_P, count, **asked)

    async def logprobs(self, weights: Weights, prompt_P: Sequence[int], tokens_T: Sequence[int]) -> NDArray[np.float32]:
        if weights.policy == "student":
            return await self._student.logprobs(weights, prompt_P, tokens_T)
        with _of_teacher():
            return await self._teacher.logprobs(weights, prompt_P, tokens_T)

    async def open_trainer(self, state_path: str | None, *, weights_only: bool = False) -> Trainer:
        return await self._student.open_trainer(state_path, weights_only=weights_only)

    async def describe(self, path: str) -> Saved:
        tinker = self._config.tinker
        if path == tinker.start_from or path not in tinker.named_teachers.values():
            return await self._student.describe(path)
        with _of_teacher():
            return await self._teacher.describe(path)

    async def delete(self, paths: Collection[str]) -> int:
        return await self._student.delete(paths)

    async def keep(self, paths: Collection[str]) -> None:
        await self._student.keep(paths)

    def abort(self) -> None:
        self._student.abort()
        self._teacher.abort()


@contextmanager
def _of_teacher() -> Iterator[None]:
    """Errors say which service they are of."""
    try:
        yield
    except RtlDistillError as error:
        raise type(error)(f"the teacher's service: {error.message}", error.hint) from error
