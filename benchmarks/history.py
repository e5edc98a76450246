"""What the history costs: storing rollouts, and asking a million of them.

    python -m benchmarks.history [store queries] [--rollouts 1000000] [--folder /tmp/bench-history] [--keep]

Without names both parts run (minutes on two cores, 2 GB of disk). Figures are wall time, which counts on an
otherwise idle machine, and CPU time, which says as much on a busy one. What the writes of a step cost a run is told by `benchmarks.step`.

Not covered: what building the rollout objects costs the pipeline; token arrays in the million (they stand in tables of
their own; `kl-by-position` alone reads them, from a sample).
"""

import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.common import options, show
from benchmarks.made_up_history import RUN, fill, rollouts
from rtl_core.history.named_queries import named_queries
from rtl_core.history.records import RunRecord
from rtl_core.history.store import History

Row = tuple[str, str, str]
"""What, measured, and whether the target was met."""


def met(value: float, limit: float, words: str) -> str:
    """The target, and whether it was met."""
    return f"{words}: {'met' if value <= limit else 'MISSED'}"


def store(folder: Path, steps: int) -> Iterator[Row]:
    """Rollouts (10,000) of 5 KB and 2,000 tokens, a step of 64 problems × 8 samples a transaction."""
    (folder / "store.duckdb").unlink(missing_ok=True)
    history = History(folder / "store.duckdb")
    history.start_run(RunRecord(name=RUN))
    wall = cpu = 0.0
    total = 0
    for number in range(steps):
        batch = rollouts(number, 64, 8, 2_000, 5_000)
        total += len(batch)
        start, before = time.perf_counter(), time.process_time()
        history.record_rollouts(batch)
        wall += time.perf_counter() - start
        cpu += time.process_time() - before
    each = f"{1e3 * wall / total:.3f} ms each (CPU {1e3 * cpu / total:.3f})"
    yield f"store {total:,} rollouts", each, met(wall / total, 0.5e-3, "≤ 0.5 ms")
    yield "file", f"{history.path.stat().st_size / 1e6:.0f} MB", ""


def queries(folder: Path, n: int) -> Iterator[Row]:
    """Each named query over a run of a million rollouts, from opening the file to the last row; median of three."""
    start = time.perf_counter()
    history = fill(folder, n)
    size = history.path.stat().st_size / 1e6
    yield f"history of {n:,} rollouts", f"{size:.0f} MB, made in {time.perf_counter() - start:.0f} s", ""
    for name, query in named_queries().items():
        given = {"from": "0", "to": "99"} if name == "kl-by-position" else {}
        values = query.bind(given, RUN) or None
        times, cpu, count = [], [], 0
        for _ in range(3):
            start, before = time.perf_counter(), time.process_time()
            count = history.query(query.sql, values).num_rows
            times.append(time.perf_counter() - start)
            cpu.append(time.process_time() - before)
        wall = statistics.median(times)
        measured = f"{wall:.3f} s (CPU {statistics.median(cpu):.3f}), {count:,} rows"
        yield f"  {name}", measured, met(wall, 1.0, "< 1 s")
    batch = rollouts(n)
    start = time.perf_counter()
    history.record_rollouts(batch)
    yield "  72 rollouts more", f"{time.perf_counter() - start:.3f} s", ""


def main() -> None:
    keep = (False, "keep the files, so that `queries` need not be filled again")
    steps = (20, "that `store` writes")
    parser = options(__doc__, rollouts=1_000_000, folder=Path("/tmp/bench-history"), keep=keep, steps=steps)
    parser.add_argument("parts", nargs="*", metavar="PART", help="store, queries (default: both)")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    parts: dict[str, Callable[[], Iterator[Row]]] = {
        "store": lambda: store(given.folder, given.steps),
        "queries": lambda: queries(given.folder, given.rollouts),
    }
    rows = (row for part in given.parts or parts for row in parts[part]())
    show(None, ("what", "measured", "target"), rows)
    if not given.keep:
        shutil.rmtree(given.folder)


if __name__ == "__main__":
    main()
