"""What an engine may lack of Tinker's protocol: keys of `Engine.lacks`, whose sentences are in `table.toml`."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files

from localtinker.futures import Json

FROZEN_SAMPLERS = "frozen_samplers"
SEVERAL_TARGETS = "several_targets"
TOPK_SCORES = "topk_scores"
EXPIRY = "expiry"
OPTIMIZER = "optimizer"
CLIPPING = "grad_clip"
SAMPLE_FIRST = "sample_before_training"
LOSS = "loss:"
"""Prefix of the keys of losses."""


@cache
def table() -> Json:
    """What the bridge translates, and what engines lack."""
    return tomllib.loads(files(__package__).joinpath("table.toml").read_text())


def lacks(engine: str, backend: str | None) -> dict[str, str]:
    """Return key -> consequence. Of an engine whose backend is not known, what any of its backends lacks."""
    sentences: dict[str, str] = {}
    for name, own in table()["lacks"].items():
        if name == engine or name.startswith(f"{engine} {backend or ''}"):
            sentences |= own
    return sentences
