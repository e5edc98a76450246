"""What a look at something before a run found: one line of `rtl-distill check`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "wrong"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. With a `wrong` one no run begins; a `warning` is told, and the run goes on."""

    about: str
    level: Level
    text: str
    remedy: str | None = None
    """What to do, of all that is not ok."""
    passing: bool = False
    """Of what is wrong: whether it may be right a moment later, such as a service that is busy."""
