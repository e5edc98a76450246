"""The numbers of a design, and the parts of vectors that it selects."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from heapq import nlargest

Place = tuple[int, int]
"""(lowest bit, bits) of a part of a vector."""
Literals = Mapping[int, list[int]]
"""Numbers by their width in bits."""
_LITERAL = re.compile(
    r"(?:(?<!\d)(\d+)\s*)?'[sS]?([bodhBODH])\s*([?xXzZ_]*[\da-fA-F][\da-fA-F_xXzZ?]*)(?!\w)"
    r"|(?<![\w'.])(\d[\d_]*)\b(?!\s*')"
)
_RUN = re.compile(
    r"(?:(?<!\w)\d{1,3}\s*'[sS]?[bodhBODH]\s*[\da-fA-F_]+[\s{}]*(?:,[\s{}]*|(?=\}))){2,32}"
)
"""Literals with widths one after the other in a concatenation."""
_UNKNOWN = str.maketrans("xXzZ?", "00000", "_")
_PART = re.compile(r"\b([A-Za-z_]\w*)\s*\[\s*(\d{1,5})\s*:\s*(\d{1,5})\s*\]")
LEAST_OWN = 16
"""Smaller numbers are often drawn by chance."""
MOST_OWN = 32
"""Each of more numbers would be tried too rarely."""
_BASES = {"b": 2, "o": 8, "d": 10, "h": 16, "": 10}


def numbers(text: str) -> Literals:
    """The literals of a text by their width in bits, 0 for those without a width."""
    results = defaultdict[int, dict[int, None]](dict)
    for width, value in _literals(text):
        results[width][value] = None
    return {width: list(values) for width, values in results.items()}


def _literals(text: str) -> Iterator[tuple[int, int]]:
    """(width or 0, value) of each literal, and of those joined in a concatenation."""
    yield from _single(text)
    for run in _RUN.findall(text):
        joined = 0
        for width, value in _single(run):
            joined = joined << width | value
        yield 0, joined


def _single(text: str) -> Iterator[tuple[int, int]]:
    """(width or 0, value) of each literal; digits that are X or Z are 0."""
    for width, base, digits, plain in _LITERAL.findall(text):
        with suppress(ValueError):
            number = (digits or plain).translate(_UNKNOWN)
            yield int(width or 0), int(number, _BASES[base.lower()])


def own_literals(text: str, other: str) -> str:
    """A text with the literals of a text that another one lacks, the largest `MOST_OWN`, and beside them with its
    small ones and the parts of vectors that it selects; empty if it has none of its own."""
    known = {value for _, value in _literals(other)}
    own, beside = dict[str, int](), dict[str, int]()
    for width, value in _literals(text):
        words = beside if value < LEAST_OWN else own
        if words is beside or value not in known:
            words[f"{width or ''}'h{value:x}"] = value
    if not own:
        return ""
    parts = (part[0] for part in _PART.finditer(text))
    return " ".join([*nlargest(MOST_OWN, own, own.__getitem__), *beside, *dict.fromkeys(parts)])


def fields(text: str, names: Collection[str]) -> dict[str, list[Place]]:
    """The parts of vectors that a text selects with constants."""
    parts = defaultdict[str, dict[Place, None]](dict)
    for name, *ends in _PART.findall(text):
        high, low = map(int, ends)
        if name in names and high >= low:
            parts[name][low, high - low + 1] = None
    return {name: list(places) for name, places in parts.items()}
