"""The numbers of a design, and the parts of vectors that it selects."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from itertools import islice

Place = tuple[int, int]
"""(lowest bit, bits) of a part of a vector."""
Literals = Mapping[int, list[int]]
"""Numbers by their width in bits."""
_LITERAL = re.compile(r"(\d+)?'[sS]?([bodhBODH])([0-9a-fA-F_]+)\b|(?<![\w'.])(\d{1,9})\b(?!')")
_PART = re.compile(r"\b([A-Za-z_]\w*)\s*\[\s*(\d{1,5})\s*:\s*(\d{1,5})\s*\]")
LEAST_OWN = 16
"""Smaller numbers are often drawn by chance."""
MOST_OWN = 32
_BASES = {"b": 2, "o": 8, "d": 10, "h": 16}


def numbers(text: str) -> Literals:
    """The literals of a text by their width in bits, 0 for those without a width."""
    results = defaultdict[int, dict[int, None]](dict)
    for width, value in _literals(text):
        results[width][value] = None
    return {width: list(values) for width, values in results.items()}


def _literals(text: str) -> Iterator[tuple[int, int]]:
    """(width or 0, value) of each literal."""
    for width, base, digits, plain in _LITERAL.findall(text):
        if plain:
            yield 0, int(plain)
            continue
        with suppress(ValueError):
            value = int(digits.replace("_", ""), _BASES[base.lower()])
            yield int(width or 0), value


def own_literals(text: str, other: str) -> str:
    """A text with the literals of a text that another one lacks, at most `MOST_OWN`, and beside them with its small
    ones and the parts of vectors that it selects; empty if it has none of its own."""
    known = {value for _, value in _literals(other)}
    own, beside = dict[str, None](), dict[str, None]()
    for width, value in _literals(text):
        words = beside if value < LEAST_OWN else own
        if words is beside or value not in known:
            words[f"{width or ''}'h{value:x}"] = None
    if not own:
        return ""
    parts = (part[0] for part in _PART.finditer(text))
    return " ".join([*islice(own, MOST_OWN), *beside, *dict.fromkeys(parts)])


def fields(text: str, names: Collection[str]) -> dict[str, list[Place]]:
    """The parts of vectors that a text selects with constants."""
    parts = defaultdict[str, dict[Place, None]](dict)
    for name, *ends in _PART.findall(text):
        high, low = map(int, ends)
        if name in names and high >= low:
            parts[name][low, high - low + 1] = None
    return {name: list(places) for name, places in parts.items()}
