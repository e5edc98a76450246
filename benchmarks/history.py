"""What it takes to ask a large history: each named query over a made-up run of a million rollouts.

    python -m benchmarks.history [--rollouts 1000000] [--folder /tmp/bench-history] [--keep]

The run is filled once (2 GB of disk); `--keep` leaves it there. Figures are wall time, which counts on an otherwise idle machine, and CPU time,
which says as much on a busy one. What the writes of a step cost a run is told by `benchmarks.step`, what a reader costs the writer by
`benchmarks.view`.

Not covered: token arrays in the million (they stand in tables of their own; `kl-by-position` alone reads them, from a sample).
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.common import options, show
from benchmarks.made_up_history import RUN, fill, rollouts
from rtl_core.history.named_queries import named_queries

Row = tuple[str, str, str]
"""What, measured, and whether the target was met."""


def met(value: float, limit: float, words: str) -> str:
    """The target, and whether it was met."""
    return f"{words}: {'met' if value <= limit else 'MISSED'}"


def queries(folder: Path, n: int) -> Iterator[Row]:
    """Each named query over a run of `n` rollouts, from opening the file to the last row; median of three."""
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
    parser = options(__doc__)
    parser.add_argument("--rollouts", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/bench-history"))
    parser.add_argument("--keep", action="store_true", help="keep the files, so that they need not be filled again")
    given = parser.parse_args()
    show(None, ("what", "measured", "target"), queries(given.folder, given.rollouts))
    if not given.keep:
        shutil.rmtree(given.folder)


if __name__ == "__main__":
    main()
