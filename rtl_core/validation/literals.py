"""Other values for integer literals: neighbours where a literal indexes, sizes or compares, a flipped bit elsewhere."""

from __future__ import annotations

import re

_BASES = {"b": 2, "o": 8, "d": 10, "h": 16}
_FORMATS = {2: "b", 8: "o", 10: "d", 16: "x"}
_UNSIZED = {"'0": "'1", "'1": "'0"}
_LITERAL = re.compile(r"(?:(\d[\d_]*)?\s*'[sS]?([bodhBODH])\s*)?([0-9a-fA-F][0-9a-fA-F_]*)")


def other_values(literal: str, *, near: bool, smaller_only: bool = False) -> list[str]:
    """Texts for a literal in its own base and width; none for one with x or z digits.

    `near`: one more and one less; else 0 and 1 change places and greater values get their last bit flipped.
    """
    if literal in _UNSIZED:
        return [_UNSIZED[literal]]
    match = _LITERAL.fullmatch(literal)
    if not match:
        return []
    base = _BASES[(match[2] or "d").lower()]
    try:
        value = int(match[3].replace("_", ""), base)
    except ValueError:
        return []
    if smaller_only:
        wanted = [value - 1]
    elif near:
        wanted = [value + 1, value - 1]
    else:
        wanted = [1 - value if value < 2 else value ^ 1]
    limit = 1 << int(match[1].replace("_", "")) if match[1] else None
    prefix = literal[: match.start(3)]
    return [prefix + format(v, _FORMATS[base]) for v in wanted if v >= 0 and (limit is None or v < limit)]
