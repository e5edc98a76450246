"""The Tinker services of a run: one, or one for the student and another one for its teachers (`tinker.teacher_base_url`)."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rtl_core.backend.base import SAVED, Backend, SampledAnswer, SamplingParams, Saved, Trainer, Weights, wanted_models
from rtl_core.config import RunConfig
from rtl_core.errors import RtlDistillError
from rtl_core.learning.distributions import Choices

TEACHER_KEY = "TINKER_TEACHER_API_KEY"
"""Environment variable with the key for the teachers' service where they have one of their own; without it TINKER_API_KEY serves both."""


@dataclass(frozen=True)
class TinkerService:
    """One service: where it is, with which key, and what the run wants of it."""

    config: RunConfig
    part: Literal["all", "student", "teacher"] = "all"
    """Whose models it serves: all, the student's or the teachers'."""

    @property
    def setting(self) -> str:
        """Key of the configuration that names its address."""
        return "tinker.teacher_base_url" if self.part == "teacher" else "tinker.base_url"

    @property
    def is_local(self) -> bool:
        """Whether it is the embedded service."""
        tinker = self.config.tinker
        return tinker.teacher_base_url == "local" if self.part == "teacher" else tinker.is_local

    @property
    def url(self) -> str | None:
        """Address of one that is not embedded; None: the one that the SDK finds, which is Tinker's cloud or TINKER_BASE_URL."""
        tinker = self.config.tinker
        if self.part == "teacher":
            return None if tinker.teacher_base_url == "cloud" else tinker.teacher_base_url
        return tinker.base_url

    @property
    def key(self) -> str | None:
        """Its own key; None: the credential that the SDK finds."""
        return os.environ.get(TEACHER_KEY) or None if self.part == "teacher" else None

    @property
    def models(self) -> dict[str, str]:
        """Key of the configuration -> model that it shall serve."""
        return {key: name for key, name in wanted_models(self.config).items() if self._has(key)}

    @property
    def weights(self) -> dict[str, str]:
        """Key of the configuration -> saved weights that it shall have."""
        tinker, evaluated = self.config.tinker, self.config.evaluation.weights
        own = {"tinker.start_from": tinker.start_from or "", "evaluation.weights": evaluated or ""}
        named = {**own, **tinker.named_teachers}
        return {key: path for key, path in named.items() if path.startswith(SAVED) and self._has(key)}

    @property
    def state(self) -> Path:
        """Where the embedded service keeps its weights. The teachers' is of this process alone: it trains nothing."""
        return self.config.run.folder / (f"teacher-{os.getpid()}" if self.part == "teacher" else "tinker")

    def _has(self, key: str) -> bool:
        return self.part == "all" or key.startswith("tinker.teacher") == (self.part == "teacher")


def services_of(config: RunConfig) -> list[TinkerService]:
    """The services of a run, the student's first."""
    if config.tinker.teacher_apart:
        return [TinkerService(config, "student"), TinkerService(config, "teacher")]
    return [TinkerService(config)]


class TwoServices:
    """See `Backend`. Each service has sessions, clients and a key of its own, and what fails on one leaves the other's alone."""

    def __init__(self, student: Backend, teacher: Backend, config: RunConfig) -> None:
        self.tokenizer = student.tokenizer
        self._student, self._teacher, self._config = student, teacher, config

    async def sample(
        self,
        weights: Weights,
        prompt_P: Sequence[int],
        count: int,
        params: SamplingParams,
        *,
        seeds: Sequence[int] | None = None,
    ) -> list[SampledAnswer]:
        with self._serving(weights.policy) as service:
            return await service.sample(weights, prompt_P, count, params, seeds=seeds)

    async def logprobs(self, weights: Weights, prompt_P: Sequence[int], tokens_T: Sequence[int]) -> NDArray[np.float32]:
        with self._serving(weights.policy) as service:
            return await service.logprobs(weights, prompt_P, tokens_T)

    async def choices(
        self, weights: Weights, prompt_P: Sequence[int], tokens_T: Sequence[int], k: int
    ) -> tuple[NDArray[np.float32], Choices]:
        with self._serving(weights.policy) as service:
            return await service.choices(weights, prompt_P, tokens_T, k)

    async def open_trainer(self, state_path: str | None, *, weights_only: bool = False) -> Trainer:
        return await self._student.open_trainer(state_path, weights_only=weights_only)

    async def describe(self, path: str) -> Saved:
        tinker = self._config.tinker
        of_teacher = path != tinker.start_from and path in tinker.named_teachers.values()
        with self._serving("teacher" if of_teacher else "student") as service:
            return await service.describe(path)

    async def delete(self, paths: Collection[str]) -> int:
        return await self._student.delete(paths)

    async def keep(self, paths: Collection[str]) -> None:
        await self._student.keep(paths)

    def abort(self) -> None:
        self._student.abort()
        self._teacher.abort()

    @contextmanager
    def _serving(self, policy: Literal["student", "teacher"]) -> Iterator[Backend]:
        """The service of a policy. Errors of the teachers' say that they are of it."""
        if policy == "student":
            yield self._student
            return
        try:
            yield self._teacher
        except RtlDistillError as error:
            raise type(error)(f"the teacher's service: {error.message}", error.hint) from error
