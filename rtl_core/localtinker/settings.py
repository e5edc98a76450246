"""How one service runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_CONTEXT = 32768
"""Longest sequence served, in tokens, unless the service is told otherwise."""


def context_of(model_config: Any, most: int = MAX_CONTEXT) -> int:
    """Tokens of the longest sequence of a model with this configuration (transformers', or that of `modules.py`): its own limit, and no
    more than `most`."""
    text = getattr(model_config, "get_text_config", lambda: model_config)()
    own = getattr(text, "max_position_embeddings", None) or most
    return min(most, own)


@dataclass(frozen=True)
class Settings:
    """How the service runs.

    `device` is what `devices.device_for` takes. `micro_tokens` bounds the padded tokens of one training pass, `cache_bytes` the key-value caches of running
    samples (None for both: by the device, see `models.room_on`), `samplers` and `sampler_bytes` the samplers kept
    ready, `idle_s` the time after which an unused training client moves to disk. `sampling_processes` sample the models
    for which one thread is enough; None: as many as `threads`, and none on a GPU; 0: the service samples everything itself.
    """

    models: dict[str, Path]
    state: Path
    dtype: str = "float32"
    device: str = "cpu"
    threads: int = 2
    sampling_processes: int | None = None
    deterministic: bool = False
    max_context: int = MAX_CONTEXT
    micro_tokens: int | None = None
    cache_bytes: int | None = None
    samplers: int = 16
    sampler_bytes: int = 1 << 30
    idle_s: float = 1800.0
    housekeeping_s: float = 15.0
