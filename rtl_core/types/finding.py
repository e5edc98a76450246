"""Result of one check before a run: one line of `rtl-distill check`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "wrong"]


@dataclass(frozen=True)
class Finding:
    """Result of one check. A `wrong` finding prevents the run; a `warning` is only printed."""

    about: str
    level: Level
    text: str
    remedy: str | None = None
    """What to do if the level is not `ok`."""
    passing: bool = False
    """Whether a wrong finding may be temporary, such as a busy service."""


Findings = Iterator[Finding]
"""What a check yields."""
