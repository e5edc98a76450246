"""The Tinker services of a run: one, or one for the student and another one for its teachers (`tinker.teacher_base_url`)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rtl_core.backend.base import SAVED, wanted_models
from rtl_core.config import RunConfig

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
