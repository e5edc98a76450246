"""Result of one check before a run: one line of `rtl-distill check`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

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

    @classmethod
    def of(cls, about: str, error: Any, passing: bool = False) -> Finding:
        """Return the finding for an error for the user, which has a message and a hint."""
        return cls(about, "wrong", error.message, error.hint, passing)


Findings = Iterator[Finding]
"""What a check yields."""
