"""Does a cell of the ledger repeat? It is run again and compared with its line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.learning.figures import rate_of
from benchmarks.learning.ledger import Cell, Ledger
from benchmarks.learning.running import Matrix, Tell, recipe_of

CELLS = (("hard-rl", 0), ("hard-warm-88", 0))
"""What `--check` runs without names: RL alone, and RL behind supervised steps."""


def check(ledger: Ledger, folder: Path, cells: Sequence[tuple[str, int]], jobs: int, tell: Tell) -> bool:
    """Run cells again; whether each one's new pass@1 lies in the 95 % interval (over problems) of its line. Nothing is written."""
    if unknown := [f"{name}-{seed}" for name, seed in cells if (name, seed) not in ledger.cells]:
        raise SystemExit(
            f"the ledger {ledger.path} has no cell {', '.join(unknown)}: name others with --only and --seeds"
        )
    matrix = Matrix(ledger, folder, [name for name, _ in cells])
    places = [(setting, seed) for setting, (_, seed) in zip(matrix.settings, cells, strict=True)]
    if stale := [f"{s.name}-{seed}" for s, seed in places if ledger.cells[s.name, seed].recipe != recipe_of(s)]:
        raise SystemExit(
            f"{', '.join(stale)}: the ledger's line is of other settings or models; run it anew, without --check"
        )
    good: list[bool] = []

    def compare(cell: Cell) -> None:
        line = ledger.tiers[cell.tier]
        before = rate_of(ledger.cells[cell.setting, cell.seed].after.passed_P, line.samples)
        now = rate_of(cell.after.passed_P, line.samples)
        good.append(before.lo <= now.mean <= before.hi)
        tell(
            f"{cell.setting}-{cell.seed}: ledger {before.mean:.3f} [{before.lo:.3f}, {before.hi:.3f}], now {now.mean:.3f}:"
            f" {'within' if good[-1] else 'OUTSIDE'}"
        )

    matrix.measure(places, jobs, compare, tell)
    return len(good) == len(cells) and all(good)
