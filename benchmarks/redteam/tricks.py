"""Attacks that show the screen a different program from the one that is simulated: the tricks of tables/tricks.toml.

Each trick hides `$finish` from a bench's filter (a simulation that ends after one sample has no mismatch)
and `$fopen` from the screen (the design is right only if the file opens).
"""

from dataclasses import dataclass, replace

from benchmarks.redteam.attack import COUNT10, COUNTER, DFF, INC, LFSR, Attack
from benchmarks.redteam.tables import read

FINISH = "initial #7 @CALL;\n"
FOPEN = 'integer fd; initial begin fd = @CALL("/code/rundir/x", "w"); ok = fd != 0; end\n'


@dataclass(frozen=True)
class Trick:
    """A way to hide a system task from one preprocessor but not from another; the table explains its texts."""

    name: str
    idea: str
    before: str = ""
    call: str = "$@T"
    opening: str = ""
    closing: str = ""

    def hide(self, task: str, statement: str) -> tuple[str, str]:
        """(text before the module, text inside) for a statement that calls `task` as `@CALL`."""
        half = len(task) // 2
        texts = [
            self.before,
            self.opening + statement.replace("@CALL", self.call) + self.closing,
        ]
        for mark, text in (("@T", task), ("@H", task[:half]), ("@L", task[half:])):
            texts = [one.replace(mark, text) for one in texts]
        return texts[0], texts[1]


PASTED, BRACKETS, GUARDS, TEXT = (
    [Trick(**row) for row in read("tricks")[kind]]
    for kind in ("PASTED", "BRACKETS", "GUARDS", "TEXT")
)
TRICKS = [*PASTED, *BRACKETS, *GUARDS, *TEXT]


def helped(trick: Trick, task: str) -> Trick:
    """Add a second trick where one would be seen: benches filter again, and the screen searches the plain
    text for file tasks."""
    plain = trick.call == "$@T"
    if task == "finish" and trick not in TEXT:
        return replace(trick, opening=trick.opening + TEXT[0].opening)
    if task == "finish" and plain:
        return replace(trick, before=trick.before + "`define JOINED @T\n", call="$`JOINED")
    if task != "finish" and plain and trick not in PASTED:
        return replace(trick, before=trick.before + "`define SPLIT $@H``@L\n", call="`SPLIT")
    return trick


def attacks() -> list[Attack]:
    """Each trick hiding `$finish` in a wrong design, and `$fopen` in one that is right only if the file opens."""
    found = []
    for trick in TRICKS:
        places = [(DFF, "finish"), (LFSR, "fopen")]
        if trick in (PASTED[0], GUARDS[0], TEXT[0]):
            places += [(COUNT10, "finish"), (INC, "finish"), (COUNTER, "fopen")]
        for base, task in places:
            statement, core = (FINISH, "wrong") if task == "finish" else (FOPEN, "switched")
            before, body = helped(trick, task).hide(task, statement.rstrip("\n"))
            text = base.design(body + "\n", before, core=core)
            found.append(
                Attack(
                    f"{trick.name}, ${task} @ {base.problem}",
                    trick.idea,
                    base.problem,
                    text=text,
                )
            )
    return found
