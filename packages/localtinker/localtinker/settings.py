"""Settings of a service and their validation."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from localtinker.errors import SettingsError

Announce = Callable[[str], None]
"""Receives the URL of a server when it is ready."""
Folders = dict[str, Path]
"""Name of a model -> its folder."""
API = "/api/v1"
"""Path above all calls of Tinker's protocol."""
MAX_CONTEXT = 32768
"""Default of the longest sequence served, in tokens."""
UPSTREAM_KEY = "TINKER_UPSTREAM_API_KEY"
"""Environment variable with the key of a bridge's engine; TINKER_API_KEY is the bridge's own."""


def context_of(model_config: Any, most: int = MAX_CONTEXT) -> int:
    """Return the context length in tokens of a model with this configuration (of transformers or
    `modules.py`), at most `most`."""
    text = getattr(model_config, "get_text_config", lambda: model_config)()
    own = getattr(text, "max_position_embeddings", None) or most
    return min(most, own)


class _ServerSettings(BaseModel):
    """Where a server listens. A `host` other than loopback needs a key; `port` 0 takes a free one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = "127.0.0.1"
    port: int = 0


class Settings(_ServerSettings):
    """Settings of a service.

    For `device` see `devices.device_for`. A training client unused for `idle_s` moves to disk.
    `sampling_processes` sample small models; None: as many as `threads`, none on a GPU; 0: none.
    """

    models: Folders
    state: Path
    dtype: str = "float32"
    device: str = "cpu"
    threads: int = Field(default_factory=lambda: min(2, os.cpu_count() or 1), ge=1)
    sampling_processes: int | None = None
    deterministic: bool = False
    max_context: int = MAX_CONTEXT
    idle_s: float = 1800.0
    housekeeping_s: float = 15.0


class BridgeSettings(_ServerSettings):
    """Settings of a bridge to the engine at `upstream`. `models` are the folders of models that the engine serves, by
    the engine's names: they tell vocabulary, context and tokenizer, which the engine does not."""

    upstream: str
    models: Folders = {}


def parse_models(texts: list[str]) -> Folders:
    """Parse values of the form NAME=PATH, or PATH, whose name is that of the folder. Raises SettingsError
    if two have one name."""
    models: Folders = {}
    for text in texts:
        name, separator, path = text.partition("=")
        if not (separator and name) or Path(text).is_dir():  # a folder's name may contain "="
            name = Path(text).resolve().name
            path = text
        if name in models:
            raise SettingsError(
                f"two models are named {name!r}",
                "give each a name of its own: --model NAME=PATH",
            )
        # Unlike Path.expanduser, accepts unknown users.
        models[name] = Path(os.path.expanduser(path))
    return models


def check_models(models: Folders) -> None:
    """Raise SettingsError if a path is not a model folder. Called before slow imports."""
    for name, path in models.items():
        if not (path / "config.json").is_file():
            beside = (file.parent.name for file in path.parent.glob("*/config.json"))
            near = get_close_matches(path.name, beside, 1)
            raise SettingsError(
                f"model {name!r}: no config.json in {path}",
                f"did you mean {path.with_name(*near)}?"
                if near
                else "give the folder of a transformers model",
            )


def is_loopback(host: str) -> bool:
    """Whether an address is reachable only from this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_exposure(host: str, key: str | None) -> None:
    """Raise SettingsError if the service would be reachable from other machines without a key."""
    if key is not None and not key.startswith("tml-"):
        raise SettingsError("TINKER_API_KEY must start with 'tml-': the SDK refuses other keys")
    if not is_loopback(host) and key is None:
        raise SettingsError(
            f"--host {host} is reachable from other machines, so a key is required",
            "set TINKER_API_KEY=tml-... in the service's environment",
        )
