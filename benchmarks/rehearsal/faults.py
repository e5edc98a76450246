"""The faults of a rehearsal (faults.toml): to which call of a Tinker service what happens, what the user sees of it, and how the run ends."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks.rehearsal.strikes import Strike, strike_of

_READ = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
PAID = tuple(_READ["PAID"])
"""Calls that an account without credit is refused."""


@dataclass(frozen=True)
class Fault:
    """One fault. It begins with the first call of one of its routes after `after` optimizer steps."""

    name: str
    routes: tuple[str, ...]
    """Calls that meet it."""
    strike: Strike
    """What happens to such a call."""
    sees: str = ""
    """A phrase in the output of the run; empty: nothing needs to be told, since it is mended in seconds."""
    ends: Literal["by itself", "stops"] = "by itself"
    """`stops`: every call is struck until the run ends with a sentence and exit code 2; then the fault is over, and the same command
    goes on."""
    times: int = 1
    """How many calls are struck."""
    lasts_s: float = 0.0
    """For how many seconds all of them are, instead of `times`."""
    mended_by: tuple[str, ...] = ()
    """The calls whose next success shows that the run went on; empty: `routes`."""
    after: int = 1
    command: tuple[str, ...] = ()
    """What a user gives to `rtl-distill`, before the run's name, so that the same command can go on."""


def _fault(entry: dict[str, Any]) -> Fault:
    routes = entry["routes"]
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()}
    routes = tuple(_READ[routes] if isinstance(routes, str) else routes)
    return Fault(**{**given, "routes": routes, "strike": strike_of(*entry["strike"])})


FAULTS = [
    _fault(entry)
    for group in ("START", "REFUSALS", "LOST", "CONNECTIONS", "UNREADABLE", "GARBAGE")
    for entry in _READ[group]
]


def named(*names: str) -> list[Fault]:
    """The faults of these names. Raises KeyError for a name that none has."""
    table = {fault.name: fault for fault in FAULTS}
    return [table[name] for name in names]
