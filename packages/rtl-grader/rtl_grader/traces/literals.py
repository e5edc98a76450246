"""The numbers of a design, and the parts of vectors that it selects."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping
from contextlib import suppress

Place = tuple[int, int]
"""(lowest bit, bits) of a part of a vector."""
Literals = Mapping[int, list[int]]
"""Numbers by their width in bits."""
_LITERAL = re.compile(r"(\d+)?'[sS]?([bodhBODH])([0-9a-fA-F_]+)\b|(?<![\w'.])(\d{1,9})\b(?!')")
_PART = re.compile(r"\b([A-Za-z_]\w*)\s*\[\s*(\d{1,5})\s*:\s*(\d{1,5})\s*\]")
_BASES = {"b": 2, "o": 8, "d": 10, "h": 16}


def numbers(text: str) -> Literals:
    """The literals of a text by their width in bits, 0 for those without a width."""
    results = defaultdict[int, dict[int, None]](dict)
    for width, base, digits, plain in _LITERAL.findall(text):
        if plain:
            results[0][int(plain)] = None
            continue
        with suppress(ValueError):
            value = int(digits.replace("_", ""), _BASES[base.lower()])
            results[int(width or 0)][value] = None
    return {width: list(values) for width, values in results.items()}


def fields(text: str, names: Collection[str]) -> dict[str, list[Place]]:
    """The parts of vectors that a text selects with constants."""
    parts = defaultdict[str, dict[Place, None]](dict)
    for name, *ends in _PART.findall(text):
        high, low = map(int, ends)
        if name in names and high >= low:
            parts[name][low, high - low + 1] = None
    return {name: list(places) for name, places in parts.items()}
