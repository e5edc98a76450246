"""What the history costs: storing rollouts, asking a million of them, reading while somebody writes.

    python -m benchmarks.history [store queries readers] [--rollouts 1000000] [--folder /tmp/bench-history] [--keep]

Without names all parts run (about four minutes on two cores, 2 GB of disk). Figures are wall time, which counts on an
otherwise idle machine, and CPU time, which says as much on a busy one. What the writes of a step cost a run is told by `benchmarks.step`.

Not covered: what building the rollout objects costs the pipeline; token arrays in the million (they stand in tables of
their own; `kl-by-position` alone reads them, from a sample).
"""

import shutil
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks.common import options, show
from benchmarks.made_up_history import REWARD, RUN, VERDICT, fill, rollouts, teacher
from rtl_core.history.named_queries import named_queries
from rtl_core.history.records import RunRecord
from rtl_core.history.store import History

Row = tuple[str, str, str]
"""What, measured, and whether the target was met."""
WRITER = "import sys; from benchmarks.made_up_history import write_steps; write_steps(*sys.argv[1:])"


def met(value: float, limit: float, words: str) -> str:
    """The target, and whether it was met."""
    return f"{words}: {'met' if value <= limit else 'MISSED'}"


def writing(path: Path, first: int, count: int, every_s: float) -> subprocess.Popen[str]:
    """A process that writes steps; a line of its output tells the seconds of each. It has written the first one."""
    command = [sys.executable, "-u", "-c", WRITER, str(path), str(first), str(count), str(every_s)]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    writer.stdout.readline()
    return writer


def store(folder: Path, steps: int) -> Iterator[Row]:
    """Rollouts (10,000) of 5 KB and 2 × 2,000 numbers, a step of 64 problems × 8 samples a transaction; then the teacher's."""
    (folder / "store.duckdb").unlink(missing_ok=True)
    history = History(folder / "store.duckdb")
    history.start_run(RunRecord(name=RUN))
    seconds: dict[str, float] = defaultdict(float)
    cpu, total = 0.0, 0

    def timed(what: str, work: Callable[[list], None], rows: list, times: int = 1) -> None:
        start = time.perf_counter()
        work(rows)
        seconds[what] += times * (time.perf_counter() - start)

    for number in range(steps):
        batch = rollouts(number, 64, 8, 2_000, 5_000)
        total += len(batch)
        before = time.process_time()
        timed("rollouts", history.record_rollouts, batch)
        cpu += time.process_time() - before
        timed("teacher, 2,000 floats", history.record_teacher, [teacher(r) for r in batch])
        timed("trainer, 2,000 floats", history.record_trainer_tokens, [(r.key, r.logprobs_T) for r in batch])
        timed("verdicts and rewards", history.record_verdicts, [(r.key, VERDICT, REWARD) for r in batch])
        if number % 10 == 0:
            timed("the same again", history.record_rollouts, batch, times=10)
    for name, spent in seconds.items():
        each = f"{1e3 * spent / total:.3f} ms each"
        if name == "rollouts":
            each += f" (CPU {1e3 * cpu / total:.3f})"
        yield f"store {total:,}: {name}", each, met(spent / total, 0.5e-3, "≤ 0.5 ms") if name == "rollouts" else ""
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


def readers(folder: Path, count: int) -> Iterator[Row]:
    """How long a reader in another process waits for its answer while one writes without a pause."""
    path = folder / "readers.duckdb"
    path.unlink(missing_ok=True)
    writer = writing(path, 0, 100_000, 0.0)
    try:
        reader, waits, steps = History(path, read_only=True), [], []
        start = time.monotonic()
        for i in range(count):
            begin = time.perf_counter()
            steps += reader.query("SELECT count(DISTINCT step) AS n FROM rollouts").column(0).to_pylist()
            waits.append(time.perf_counter() - begin)
            time.sleep(0.02 * (i % 3))
        rate = (steps[-1] - steps[0]) / (time.monotonic() - start)
    finally:
        writer.kill()
        writer.wait()
    p50, p95 = np.percentile(waits, [50, 95])
    measured = f"p50 {1e3 * p50:.0f} ms, p95 {1e3 * p95:.0f} ms, max {1e3 * max(waits):.0f} ms"
    yield f"{count} reads beside a writer without pause", measured, met(float(p95), 0.5, "p95 < 0.5 s")
    yield "  the writer meanwhile", f"{rate:.1f} steps/s of 72 rollouts", ""


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help="store, queries, readers (default: all)")
    parser.add_argument("--rollouts", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/bench-history"))
    parser.add_argument(
        "--keep", action="store_true", help="keep the files, so that `queries` need not be filled again"
    )
    parser.add_argument("--steps", type=int, default=20, help="that `store` writes; 15 reads of `readers` for each")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    parts: dict[str, Callable[[], Iterator[Row]]] = {
        "store": lambda: store(given.folder, given.steps),
        "queries": lambda: queries(given.folder, given.rollouts),
        "readers": lambda: readers(given.folder, 15 * given.steps),
    }
    rows = (row for part in given.parts or parts for row in parts[part]())
    show(None, ("what", "measured", "target"), rows)
    if not given.keep:
        shutil.rmtree(given.folder)


if __name__ == "__main__":
    main()
