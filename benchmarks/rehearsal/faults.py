"""The faults of a rehearsal (faults.toml): which calls of a Tinker service fail how, what the user sees,
and how the run ends."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks.rehearsal.strikes import Strike, strike_of

_READ = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
PAID = tuple(_READ["PAID"])
"""Calls that are refused to an account without credit."""


@dataclass(frozen=True)
class Fault:
    """One fault. It begins with the first call of one of its routes after `after` optimizer steps."""

    name: str
    routes: tuple[str, ...]
    """Calls that meet it."""
    strike: Strike
    """What happens to such a call."""
    sees: str = ""
    """A phrase in the run's output; empty for a fault that is mended in seconds and needs no message."""
    ends: Literal["by itself", "stops"] = "by itself"
    """`stops`: all calls are struck until the run ends with a message and exit code 2; then the fault is
    over, and the run is resumed."""
    times: int = 1
    """Number of calls that are struck."""
    lasts_s: float = 0.0
    """If not 0, strike all calls for this many seconds, instead of `times`."""
    mended_by: tuple[str, ...] = ()
    """Calls whose next success shows that the run goes on; empty: `routes`."""
    after: int = 1
    command: tuple[str, ...] = ()
    """Arguments for `rtl-distill`, before the run's name, that a user needs before the run can be resumed."""


def _fault(entry: dict[str, Any]) -> Fault:
    given = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in entry.items()
    }
    routes = tuple(
        _READ[entry["routes"]] if isinstance(entry["routes"], str) else entry["routes"]
    )
    return Fault(**{**given, "routes": routes, "strike": strike_of(*entry["strike"])})


FAULTS = [
    _fault(entry)
    for group in ("START", "REFUSALS", "LOST", "CONNECTIONS", "UNREADABLE", "GARBAGE")
    for entry in _READ[group]
]
