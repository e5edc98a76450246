"""What a case is, and how it says that something is wrong.

A case is a coroutine function of a `Bench`. Its docstring is what a server is held to. It returns what it measured, in a few words, or raises
`Differs`, or lets an error of the SDK out, which `examine` reads.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rtl_core.backend.certify.bench import Bench

Group = Literal["calls", "saved weights", "numbers", "against transformers", "faults"]
Outcome = Literal["OK", "differs", "missing", "not tried"]
Body = Callable[["Bench"], Awaitable[str]]


class Differs(Exception):
    """The server answers, but not as it must; the message says what came instead."""


class NotTried(Exception):
    """The case cannot be asked of this server; the message says why."""


@dataclass(frozen=True)
class Case:
    """One thing that a server is asked to do."""

    name: str
    group: Group
    promise: str
    """What a server is held to: the docstring of `body`."""
    without: str
    """What a run cannot do where the server does not keep it."""
    needed: bool
    """Whether every run needs it; else it is an option's."""
    needs: tuple[str, ...]
    """Names of cases without which this one says nothing."""
    body: Body


@dataclass(frozen=True)
class Result:
    """What came of a case."""

    case: Case
    outcome: Outcome
    found: str
    """What was measured, or what is wrong."""
    seconds: float

    @property
    def prevents(self) -> bool:
        """Whether no run should begin on this server. A needed case that could not be asked counts as well."""
        return self.case.needed and self.outcome != "OK"


CASES: dict[str, Case] = {}
"""Name -> case, in the order in which they run."""


def case(
    name: str,
    group: Group,
    *,
    without: str,
    needed: bool = True,
    needs: tuple[str, ...] = ("session",),
    promise: str | None = None,
) -> Callable[[Body], Body]:
    """Register a coroutine function as a case; `promise` stands for its docstring where one function makes several cases."""

    def register(body: Body) -> Body:
        words = " ".join((promise or body.__doc__ or "").split())
        unknown = set(needs) - CASES.keys()
        if name in CASES or unknown or not words:
            raise ValueError(f"case {name!r}: the name is taken, it needs unknown cases {unknown}, or it says nothing")
        CASES[name] = Case(name, group, words, without, needed, needs, body)
        return body

    return register


def demand(condition: bool, otherwise: str) -> None:
    """Raise `Differs` with these words unless the condition holds."""
    if not condition:
        raise Differs(otherwise)
