"""Measure how long a run takes until its first train step, with few problems and with many.

    python -m benchmarks.start [--rows 400,20000] [--heldout 16] [--pairs ../shared/data/pairs]
        [--folder /tmp/bench-pairs]

Trains the embedded student on pairs (benchmarks/problem_reading.py makes the files), with about `--heldout`
held-out problems in each run, and ends it after the first step. Then asks the run's history. Prints wall seconds
from the command to the first step and the CPU seconds of all its processes, and wall seconds of the report, of the
slowest named query and of the run's page in the view.
"""

import re
import resource
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.common import DATA, command, options, run_settings, show
from benchmarks.history import ask, served
from benchmarks.problem_reading import fill
from rtl_core.history.named_queries import named_queries
from rtl_core.history.store import History
from rtl_core.reporting.report import write_report
from rtl_core.view.links import link

SETTINGS = (
    "prompting.max_prompt_tokens=800",
    "sampling.group_size=2",
    "curriculum.problems_per_step=4",
    "evaluation.samples=1",
    "evaluation.k=[1]",
    "evaluation.teacher=false",
    "run.epochs=1",
)
FIRST_STEP = re.compile(r"\bstep +1/")


def cpu_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def first_step(file: Path, rows: int, heldout: int, folder: Path) -> tuple[float, float]:
    """Wall seconds until the first step is trained, and CPU seconds of the run, which is then ended."""
    source = f'{{kind = "pairs", path = "{file}", heldout_fraction = {heldout / rows}}}'
    sets = [*run_settings("start", folder), *SETTINGS, f"problems.sources=[{source}]"]
    start, cpu = time.perf_counter(), cpu_of_children()
    train = subprocess.Popen(
        command("train", "demo", sets=sets),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert train.stdout is not None
    with (folder / "train.log").open("w") as log:
        for line in train.stdout:
            log.write(line)
            if FIRST_STEP.search(line):
                break
        else:
            raise SystemExit(f"the run ended before its first step: see {folder}/train.log")
        wall = time.perf_counter() - start
        train.terminate()
        log.write(train.communicate()[0])
    return wall, cpu_of_children() - cpu


def asked(folder: Path) -> tuple[float, str, float]:
    """Wall seconds of the report, of the slowest named query in words, and of the run's page."""
    history = History(folder / "history.duckdb")
    report = seconds(lambda: write_report(history, ["start"], folder / "report.html"))
    queries = {
        name: seconds(lambda query=query: history.query(query.sql, query.bind({}, "start")))
        for name, query in named_queries().items()
    }
    slowest = max(queries, key=queries.__getitem__)
    with served(history.path) as (base, _):
        ask(f"{base}/")
        page = ask(f"{base}{link('/run', run='start')}")
    return report, f"{queries[slowest]:.2f} ({slowest})", page


def main() -> None:
    parser = options(
        __doc__,
        rows=[400, 20_000],
        heldout=16,
        pairs=DATA / "pairs",
        folder=Path("/tmp/bench-pairs"),
    )
    given = parser.parse_args()
    table = []
    for rows in given.rows:
        file, folder = given.folder / f"pairs-{rows}.jsonl", given.folder / f"run-{rows}"
        fill(file, given.pairs, rows)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        wall, cpu = first_step(file, rows, given.heldout, folder)
        report, slowest, page = asked(folder)
        table.append(
            (f"{rows:,}", f"{wall:.1f}", f"{cpu:.1f}", f"{report:.2f}", slowest, f"{page:.2f}")
        )
    columns = ["pairs", "first step s", "CPU s", "report s", "slowest query s", "run's page s"]
    show("", columns, table)


if __name__ == "__main__":
    main()
