"""Which widths and module names belong to which split: fixed by hash, so that no two splits can share a specification.

Of the widths of a family (the textbook's 8 apart, which stays in train), the first three by hash are held out and the
next three are for the test split. Module names go by hash too, three in five to train. Both rules hold at once: a
held-out problem has a module name *and*, where its family has widths, a (family, width) pair that train never shows.
"""

from __future__ import annotations

import hashlib
from functools import cache

from rtl_core.problems.starter import names
from rtl_core.problems.starter.spec import TEXTBOOK_WIDTH, Family, Split

WIDTHS_PER_SPLIT = 3


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def widths_of(family: Family, split: Split) -> tuple[int, ...]:
    """The widths that `split` may use for `family`; all of them for a family that has fewer than eight."""
    if len(family.widths) < 2 + 2 * WIDTHS_PER_SPLIT:
        return family.widths
    ranked = sorted(
        (width for width in family.widths if width != TEXTBOOK_WIDTH), key=lambda width: _hash(f"{family.name}/{width}")
    )
    chosen = {
        "heldout": ranked[:WIDTHS_PER_SPLIT],
        "test": ranked[WIDTHS_PER_SPLIT : 2 * WIDTHS_PER_SPLIT],
        "train": [TEXTBOOK_WIDTH, *ranked[2 * WIDTHS_PER_SPLIT :]],
    }
    return tuple(sorted(chosen[split]))


@cache
def modules_of(split: Split) -> tuple[str, ...]:
    """The module names that `split` may use."""
    wanted = {"heldout": (0,), "test": (1,), "train": (2, 3, 4)}[split]
    return tuple(name for name in names.MODULES if _hash(f"module/{name}") % 5 in wanted)
