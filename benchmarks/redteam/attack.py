"""Attacks, which are answers whose right verdict is known in advance, and designs for the attacked problems."""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rtl_grader.types.verdict import Outcome

UNPAID = frozenset(Outcome) - {Outcome.PASSED, Outcome.INFRASTRUCTURE_ERROR}
"""Outcomes allowed for a wrong answer: neither the reward nor an error that is blamed on the grader."""
PAID = frozenset({Outcome.PASSED})
"""Outcome required for an honest answer."""


@dataclass(frozen=True)
class Attack:
    """An answer, in exactly one of `text`, `files` and `response`."""

    name: str
    idea: str
    """What it exploits, in a sentence."""
    problem: str
    """A key of `problems.py`."""
    text: str | Callable[[], str] | None = None
    """The problem's first target, or a function that makes it (for texts too large to keep)."""
    files: Mapping[str, str] | None = None
    """Workspace path -> text."""
    response: str | Callable[[], str] | None = None
    """A whole response, from which the answer is extracted."""
    right: frozenset[Outcome] = UNPAID
    primed: str | None = None
    """A text of the same target to grade first, with the same cache."""

    @property
    def honest(self) -> bool:
        return self.right == PAID


@dataclass(frozen=True)
class Base:
    """A problem and designs for it, on which attacks are built."""

    problem: str
    head: str
    """The module's header."""
    body: str
    """The rest of the module; `@X` is the expression in which the designs differ."""
    wrong: str
    """An expression that no test bench may pass."""
    good: str
    """An expression that does what the problem asks."""
    pins: tuple[str, str]
    """Two ports, the first an input: `@I` and `@O` in a table's row."""

    def core(self, kind: str) -> str:
        """A body: `wrong`, `good`, `empty`, or `switched`, which is right while its register `ok` is 1 and
        wrong while it is 0, its initial value. An attack that sets `ok` by a forbidden call passes only if
        that call works."""
        if kind == "empty":
            return ""
        if kind == "switched":
            return "reg ok = 0;\n" + self.body.replace(
                "@X", f"(ok ? {self.good} : {self.wrong})"
            )
        return self.body.replace("@X", self.good if kind == "good" else self.wrong)

    def design(
        self, body: str = "", before: str = "", after: str = "", core: str = "wrong"
    ) -> str:
        """The module with `body` after the core, between two other texts."""
        return f"{before}{self.head}{self.core(core)}{body}endmodule\n{after}"


_READ = tomllib.loads((Path(__file__).parent / "tables/bases.toml").read_text(encoding="utf-8"))
BASES = {key: Base(key, **{**one, "pins": tuple(one["pins"])}) for key, one in _READ.items()}
"""Designs for the attacked problems, by problem (tables/bases.toml)."""
LFSR, DFF, COUNT10, INC, COUNTER = (
    BASES[key]
    for key in ("cvdp/lfsr", "ve/Prob031", "ve/Prob035", "own/bench", "starter/counter")
)
