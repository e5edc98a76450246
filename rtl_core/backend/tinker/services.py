"""The Tinker services of a run: one for all models, or separate ones for student and teachers
(`tinker.teacher_base_url`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import tinker
from tinker.lib.base_url import resolve_base_url

from localtinker.bridge import Engine
from rtl_core.backend.base import SAVED
from rtl_core.backend.start import known_folder, wanted_models
from rtl_core.backend.tinker.marks import Marks
from rtl_core.config import RunConfig
from rtl_core.errors import PolicyError

TEACHER_KEY = "TINKER_TEACHER_API_KEY"
"""Environment variable with the key of a separate teacher service. Fallback: TINKER_API_KEY."""


@dataclass(frozen=True)
class Endpoint:
    """Address and key of what clients talk to: a service, or the bridge to an engine. None: the SDK's default, which
    is the cloud with the credential that the SDK finds."""

    base_url: str | None = None
    api_key: str | None = None
    kill: Callable[[], None] = lambda: None
    """Kill the embedded service or the bridge, from any thread. Does nothing for other services."""
    engine: Engine | None = None
    """The engine behind a bridge."""
    marks: Marks = field(default_factory=dict)
    """Attached to sessions, training runs and saved weights."""

    @property
    def lacks(self) -> Mapping[str, str]:
        """What the engine lacks of Tinker's protocol (localtinker/bridge/capabilities.py)."""
        return self.engine.lacks if self.engine else {}

    def rest(self) -> tinker.RestClient:
        """Return a client for what needs no session."""
        return tinker.RestClient(base_url=self.base_url, api_key=self.api_key)


@dataclass(frozen=True)
class TinkerService:
    """One service: its address, its key, and what the run needs from it."""

    config: RunConfig
    part: Literal["all", "student", "teacher"] = "all"
    """Which models it serves."""
    through: Endpoint | None = None
    """The bridge that its clients talk to, once it runs (engines.py)."""

    @property
    def setting(self) -> str:
        """Configuration key of its address."""
        return "tinker.teacher_base_url" if self.part == "teacher" else "tinker.base_url"

    @property
    def is_local(self) -> bool:
        """Whether it is the embedded service."""
        tinker = self.config.tinker
        return tinker.teacher_base_url == "local" if self.part == "teacher" else tinker.is_local

    @property
    def url(self) -> str | None:
        """Address of a remote service. None: the SDK's default, which is TINKER_BASE_URL or Tinker's cloud."""
        if self.through is not None:
            return self.through.base_url
        tinker = self.config.tinker
        if self.part == "teacher":
            return None if tinker.teacher_base_url == "cloud" else tinker.teacher_base_url
        return tinker.base_url

    @property
    def address(self) -> str:
        """URL of a remote service itself, not of a bridge to it."""
        return resolve_base_url(replace(self, through=None).url)

    @property
    def key(self) -> str | None:
        """Its own key. None: the credential that the SDK finds."""
        if self.through is not None:
            return self.through.api_key
        return os.environ.get(TEACHER_KEY) or None if self.part == "teacher" else None

    @property
    def models(self) -> dict[str, str]:
        """Mapping of configuration key to a model that it must serve."""
        return {key: name for key, name in wanted_models(self.config).items() if self._has(key)}

    @property
    def weights(self) -> dict[str, str]:
        """Mapping of configuration key to saved weights that it must have."""
        named = {
            "tinker.start_from": self.config.tinker.start_from,
            "evaluation.weights": self.config.evaluation.weights,
            **self.config.tinker.named_teachers,
        }
        return {
            key: path
            for key, path in named.items()
            if path and path.startswith(SAVED) and self._has(key)
        }

    @property
    def state(self) -> Path:
        """State folder of the embedded service. That of the teachers belongs to this process, because it
        trains nothing."""
        return self.config.run.folder / (
            f"teacher-{os.getpid()}" if self.part == "teacher" else "tinker"
        )

    @property
    def trains(self) -> bool:
        """Whether the run trains its student there."""
        return self.part != "teacher" and self.config.run.purpose == "train"

    @property
    def lacks(self) -> Mapping[str, str]:
        """See `Endpoint.lacks`."""
        return {} if self.through is None else self.through.lacks

    def _has(self, key: str) -> bool:
        return self.part == "all" or key.startswith("tinker.teacher") == (
            self.part == "teacher"
        )


def folder_of(config: RunConfig, model: str) -> Path | None:
    """Return the folder of a model on this machine (`known_folder`); None if it is nowhere here."""
    with suppress(PolicyError):  # it was not fetched
        return known_folder(config, model)
    return None


def services_of(config: RunConfig) -> list[TinkerService]:
    """Return the services of a run, the student's first."""
    if config.tinker.teacher_apart:
        return [TinkerService(config, "student"), TinkerService(config, "teacher")]
    return [TinkerService(config)]
