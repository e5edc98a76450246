"""Cases, their marks and their registry.

A case is a coroutine function with `@case` that takes a `Bench`. Its docstring states the required
behaviour. It returns a short measurement, fails an assertion that says what happened instead, raises
`NotTriedError` if it does not apply to this server, or raises an SDK error.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

Test = Callable[..., Awaitable[str]]
"""Takes a `Bench`."""


class NotTriedError(Exception):
    """A case cannot be tried on this server; the message says why."""


@dataclass(frozen=True)
class Case:
    """One test case."""

    name: str
    group: str
    promise: str
    """Required behaviour: the docstring of the test function."""
    without: str
    """What a run cannot do if the case fails."""
    needed: bool
    """Whether every run needs it. Otherwise only some options do."""
    needs: Sequence[str]
    """Names of prerequisite cases."""
    run: Test


CASES: dict[str, list[Case]] = defaultdict(list)
"""Cases by the name of their module, in the order of their functions. Prerequisites of a case come earlier."""


def case(
    name: str,
    *,
    without: str,
    needs: Sequence[str] = ("session",),
    needed: bool = True,
    **arguments: Any,
) -> Callable[[Test], Test]:
    """Register a test function as a case; see `Case`. A function with further parameters is registered once
    for each set of `arguments` values, which also replace braces in its docstring."""

    def register(test: Test) -> Test:
        words = (test.__doc__ or "").split()
        promise = " ".join(words).format_map(arguments)
        group = test.__module__.rpartition(".test_")[2].replace("_", " ")
        CASES[test.__module__].append(
            Case(name, group, promise, without, needed, needs, partial(test, **arguments))
        )
        return test

    return register


option = partial(case, needed=False)
"""Register a case that only some options of a run, or other programs, need."""
