"""Words for the names of starter problems. Internal signals of golden answers (s, c, k, z, ...) are not among them."""

from __future__ import annotations

import random
import tomllib
from pathlib import Path

_WORDS: dict[str, list[str]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
CLOCKS, RESETS_HIGH, RESETS_LOW, PORTS, PARAMETERS, MODULE_WORDS = _WORDS.values()
SUFFIXES = ("", "", "", "", "", "", "_i", "_o", "_x", "_r")
ALL = (*CLOCKS, *RESETS_HIGH, *RESETS_LOW, *PORTS, *MODULE_WORDS, *PARAMETERS)
MODULES = tuple(f"{p}_{q}" for p in MODULE_WORDS for q in MODULE_WORDS if p != q)


def draw_ports(rng: random.Random, count: int) -> tuple[str, ...]:
    """Draw `count` different port names, two in five with a suffix."""
    return tuple(word + rng.choice(SUFFIXES) for word in rng.sample(PORTS, count))
