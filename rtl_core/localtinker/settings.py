"""How one service runs: its settings, and the checks of what a user gives."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from rtl_core.errors import ConfigError
from rtl_core.http_server import is_loopback

MAX_CONTEXT = 32768
"""Longest sequence served, in tokens, unless the service is told otherwise."""


def context_of(model_config: Any, most: int = MAX_CONTEXT) -> int:
    """Tokens of the longest sequence of a model with this configuration (transformers', or that of `modules.py`): its own limit, and no
    more than `most`."""
    text = getattr(model_config, "get_text_config", lambda: model_config)()
    own = getattr(text, "max_position_embeddings", None) or most
    return min(most, own)


class Settings(BaseModel):
    """How the service runs.

    `host` other than loopback needs a key, `port` 0 takes a free one. `device` is what `devices.device_for` takes, `idle_s` the time after
    which an unused training client moves to disk. `sampling_processes` sample the models for which one thread is enough; None: as many as
    `threads`, and none on a GPU; 0: the service samples everything itself.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    models: dict[str, Path]
    state: Path
    host: str = "127.0.0.1"
    port: int = 0
    dtype: str = "float32"
    device: str = "cpu"
    threads: int = Field(default_factory=lambda: min(2, os.cpu_count() or 1))
    sampling_processes: int | None = None
    deterministic: bool = False
    max_context: int = MAX_CONTEXT
    idle_s: float = 1800.0
    housekeeping_s: float = 15.0


def parse_model(text: str) -> tuple[str, Path]:
    """NAME=PATH, or PATH alone, which takes the folder's name."""
    name, separator, path = text.partition("=")
    if not separator:
        return Path(text).resolve().name, Path(text)
    return name, Path(path)


def check_models(models: dict[str, Path]) -> None:
    """Raises ConfigError for a path that is no model folder, before anything slow is imported."""
    for name, path in models.items():
        if not (path / "config.json").is_file():
            raise ConfigError(f"model {name!r}: no config.json in {path}", "give the folder of a transformers model")


def check_exposure(host: str, key: str | None) -> None:
    """Raises ConfigError when the service would be reachable from other machines without a key."""
    if key is not None and not key.startswith("tml-"):
        raise ConfigError("TINKER_API_KEY must start with 'tml-': the SDK refuses other keys")
    if not is_loopback(host) and key is None:
        raise ConfigError(
            f"--host {host} is reachable from other machines, so a key is required",
            "set TINKER_API_KEY=tml-... in the service's environment",
        )
