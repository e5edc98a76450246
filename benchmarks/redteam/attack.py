"""The noun *attack*: an answer whose right verdict is known before it is graded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from rtl_core.types.verdict import Outcome

UNPAID = frozenset(Outcome) - {Outcome.PASSED, Outcome.INFRASTRUCTURE_ERROR}
"""What a wrong answer may get: anything but the reward, and never the blame for the grader."""
PAID = frozenset({Outcome.PASSED})
"""What an honest answer must get."""


@dataclass(frozen=True)
class Attack:
    """One answer. Exactly one of `text`, `files`, `response` holds it."""

    name: str
    idea: str
    """What it exploits, in a sentence."""
    problem: str
    """A key of `problems.py`."""
    text: str | Callable[[], str] | None = None
    """The problem's first target, or what makes it (for texts too large to keep)."""
    files: Mapping[str, str] | None = None
    """Workspace path -> text."""
    response: str | Callable[[], str] | None = None
    """A whole response, which goes through extraction."""
    right: frozenset[Outcome] = UNPAID
    primed: str | None = None
    """A text of the same target that is graded first into the same cache."""

    @property
    def honest(self) -> bool:
        return self.right == PAID


@dataclass(frozen=True)
class Base:
    """A problem and designs for it, around which attacks are written."""

    problem: str
    head: str
    """The module's header."""
    wrong: str
    """A body that no test bench may pass."""
    good: str
    """A body that does what the problem asks."""
    switched: str
    """A body that is right while its register `ok` is 1 and wrong while it is 0, its first value. An attack that sets
    `ok` by a forbidden call passes only where that call works."""

    def design(self, body: str = "", before: str = "", after: str = "", core: str = "wrong") -> str:
        """The module with `body` behind the core (`wrong`, `good`, `switched` or `empty`), between two other texts."""
        own = {"wrong": self.wrong, "good": self.good, "switched": self.switched, "empty": ""}[core]
        return f"{before}{self.head}{own}{body}endmodule\n{after}"


def around(
    bases: Iterable[Base],
    name: str,
    idea: str,
    body: str = "",
    before: str = "",
    after: str = "",
    core: str = "wrong",
    right: frozenset[Outcome] = UNPAID,
) -> list[Attack]:
    """The same attack on several problems."""
    return [
        Attack(f"{name} @ {base.problem}", idea, base.problem, text=base.design(body, before, after, core), right=right)
        for base in bases
    ]
