"""Measure the costs of the history: storing rollouts, querying a million of them, and the pages of
`rtl-distill view` over them.

    python -m benchmarks.history [store queries pages] [--rollouts 1000000] [--folder /tmp/bench-history] [--keep]

Runs the named parts, or all (minutes on two cores, 2 GB of disk), over a made-up run in `--folder`, which
is created once. Prints wall time, which is valid on an otherwise idle machine, and CPU time, which is also
valid on a busy one. `benchmarks.step` measures what the writes of a step cost a run. For `pages` a server
in a separate process is asked over HTTP, a new address each time (it caches no answers).

Not covered: how the pipeline builds rollouts; millions of token arrays (they are in separate tables; only
`kl-by-position` reads them, from a sample); drawing a page in the browser (tests/view measures that in
Chromium), and simulators that use the same cores.
"""

import contextlib
import os
import statistics
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import psutil

from benchmarks.common import command, options, show
from rtl_core.history import connection, schema
from rtl_core.history.named_queries import named_queries
from rtl_core.history.records import RunRecord
from rtl_core.history.store import History
from rtl_core.starter import Split, starter_problems
from rtl_core.types.rollout import Rollout
from rtl_core.view.links import link, rollout_link
from rtl_grader.types.problem import Problem

RUN = "bench"
TRAIN, HELDOUT = 400, 40
"""Problems of each split."""
ALIKE = 20
"""Number of problems with the same text, because making a starter problem takes milliseconds."""
PER_STEP, SAMPLES = 25, 8
PLACE = "rollout, run, purpose, evaluation, epoch, step, problem_id"
_FILL = Template(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
Row = tuple[str, str, str]
"""What was measured, the result, and whether the target was met."""


def fill(folder: Path, n: int) -> History:
    """Make a run of `n` training rollouts with an evaluation every 100 steps (history.sql), unless the file exists."""
    path = folder / f"made-up-{n}-{schema.VERSION}.duckdb"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        half = path.with_suffix(".part")
        half.unlink(missing_ok=True)
        history = History(half)
        history.start_run(
            RunRecord(name=RUN, status="running", student="student", teacher="teacher")
        )
        history.record_problems(
            RUN, [(p, "train", i) for i, p in enumerate(_problems("train", TRAIN))]
        )
        history.record_problems(
            RUN, [(p, "heldout", None) for p in _problems("heldout", HELDOUT)]
        )
        sizes = {
            "n": n,
            "train": TRAIN,
            "heldout": HELDOUT,
            "samples": SAMPLES,
            "per_step": PER_STEP,
        }
        with connection.connect(half, read_only=False) as con:
            con.execute(_FILL.substitute(sizes, run=RUN, step=PER_STEP * SAMPLES, place=PLACE))
        half.rename(path)
    return History(path)


def _problems(split: Split, count: int) -> list[Problem]:
    made = starter_problems(split, -(-count // ALIKE), 0)
    return [
        p.model_copy(
            update={"id": f"{split}_{number:02d}_{p.id}", "prompt": f"{p.prompt} ({number})"}
        )
        for p in made
        for number in range(ALIKE)
    ]


def rollouts(
    step: int, problems: int = 12, samples: int = 6, tokens: int = 60, characters: int = 500
) -> list[Rollout]:
    """The rollouts of a step."""
    rng = np.random.default_rng(step)
    line = "assign q = a ^ b; // made up\n"
    return [
        Rollout(
            run=RUN,
            purpose="train",
            epoch=step // 100,
            step=step,
            problem_id=f"starter_problem_{p:05d}",
            sample=s,
            prompt_P=tuple(range(p, p + 30)),
            tokens_T=tuple(rng.integers(0, 600, tokens).tolist()),
            logprobs_T=tuple((-rng.exponential(0.3, tokens)).tolist()),
            stop_reason="stop",
            text=f"{step} {p} {s} " + (line * (characters // len(line) + 1))[:characters],
            policy_step=step,
        )
        for p in range(problems)
        for s in range(samples)
    ]


def timed(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """(wall seconds, CPU seconds, result) of a call."""
    start, before = time.perf_counter(), time.process_time()
    result = work()
    return time.perf_counter() - start, time.process_time() - before, result


def met(value: float, limit: float, words: str) -> str:
    """The target, and whether it was met."""
    return f"{words}: {'met' if value <= limit else 'MISSED'}"


def store(folder: Path, steps: int) -> Iterator[Row]:
    """Store rollouts of 5 KB and 2,000 tokens, a step of 64 problems × 8 samples a transaction."""
    (folder / "store.duckdb").unlink(missing_ok=True)
    history = History(folder / "store.duckdb")
    history.start_run(RunRecord(name=RUN))
    batches = (rollouts(number, 64, 8, 2_000, 5_000) for number in range(steps))
    wall, cpu = np.sum(
        [timed(partial(history.record_rollouts, batch))[:2] for batch in batches], axis=0
    )
    total = 512 * steps
    each = f"{1e3 * wall / total:.3f} ms each (CPU {1e3 * cpu / total:.3f})"
    yield f"store {total:,} rollouts", each, met(wall / total, 0.5e-3, "≤ 0.5 ms")
    yield "file", f"{history.path.stat().st_size / 1e6:.0f} MB", ""


def queries(folder: Path, n: int) -> Iterator[Row]:
    """Run each named query over the history, from opening the file to the last row; median of three."""
    made_s, _, history = timed(lambda: fill(folder, n))
    yield (
        f"history of {n:,} rollouts",
        f"{history.path.stat().st_size / 1e6:.0f} MB, made in {made_s:.0f} s",
        "",
    )
    for name, query in named_queries().items():
        given = {"from": "0", "to": "99"} if name == "kl-by-position" else {}
        ask_once = partial(history.query, query.sql, query.bind(given, RUN) or None)
        walls, cpus, tables = zip(*(timed(ask_once) for _ in range(3)), strict=True)
        wall = statistics.median(walls)
        measured = (
            f"{wall:.3f} s (CPU {statistics.median(cpus):.3f}), {tables[0].num_rows:,} rows"
        )
        yield f"  {name}", measured, met(wall, 1.0, "< 1 s")
    batch = rollouts(n)
    yield "  72 rollouts more", f"{timed(lambda: history.record_rollouts(batch))[0]:.3f} s", ""


@contextlib.contextmanager
def served(path: Path) -> Iterator[tuple[str, psutil.Process]]:
    """`rtl-distill view` over a history: its address and its process."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    words = ("view", "--no-browser", "--db", path)
    process = subprocess.Popen(
        command(*words), stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip().rstrip("/"), psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


def ask(address: str) -> float:
    """Seconds that an address takes to answer, to the last byte."""
    start = time.perf_counter()
    with urllib.request.urlopen(address) as answer:
        answer.read()
    return time.perf_counter() - start


def clicks(history: History) -> dict[str, str]:
    """Addresses of each kind of page, around the latest failed answer whose tokens are there."""
    (one,) = history.query(
        "SELECT rollout, step, problem_id, family FROM verdicts JOIN tokens USING (rollout) JOIN "
        "run_problems USING (run, problem_id)"
        " WHERE outcome = 'tests_failed' AND purpose = 'train' ORDER BY step DESC LIMIT 1"
    ).to_pylist()
    (last,) = history.query(
        "SELECT count(DISTINCT step) // 40 AS steps, count(*) // 120 AS rollouts, max(evaluation) "
        "AS evaluation FROM rollouts"
    ).to_pylist()
    key, step = one["rollout"], one["step"]
    return {
        "run": link("/run", run=RUN),
        f"run, page {last['steps'] + 1} of its steps": link(
            "/run", run=RUN, page=last["steps"]
        ),
        "step": link("/step", run=RUN, step=step),
        "evaluation": link("/step", run=RUN, evaluation=last["evaluation"]),
        "group": link("/group", run=RUN, step=step, problem=one["problem_id"]),
        "rollout": rollout_link(key),
        "rollout against golden": rollout_link(key, against="golden", overlay="advantage"),
        "all rollouts": link("/rollouts", run=RUN),
        f"all rollouts, page {last['rollouts'] + 1:,}": link(
            "/rollouts", run=RUN, page=last["rollouts"]
        ),
        "by outcome": link("/rollouts", run=RUN, outcome="tests_failed"),
        "by kind of failing": link("/rollouts", run=RUN, outcome="reset wrong"),
        "by mistake and family": link(
            "/rollouts", run=RUN, mistake="extra_port", family=one["family"]
        ),
        "by check": link("/rollouts", run=RUN, check="reset_value", outcome="tests_failed"),
        "by a word of the text": link(
            "/rollouts", run=RUN, q="line 31", outcome="tests_failed"
        ),
        "what goes wrong": link("/wrong", run=RUN),
        "  and its interface mistakes": link("/mistakes", run=RUN),
    }


def pages(history: History) -> Iterator[Row]:
    """Each page five times, never the same address twice. CPU seconds are the server's, over all its threads."""
    with served(history.path) as (base, server):
        first = ask(f"{base}/")
        yield "the first page after the start", f"{first:.3f} s", met(first, 1.0, "< 1 s")
        for name, address in {"runs": "/?", **clicks(history)}.items():
            before = server.cpu_times()
            seconds = [ask(f"{base}{address}&anew={i}") for i in range(5)]
            middle, after = statistics.median(seconds), server.cpu_times()
            cpu = (after.user + after.system - before.user - before.system) / 5
            words = f"{middle:.3f} s, slowest {max(seconds):.3f} s, CPU {cpu:.2f} s"
            yield f"  {name}", words, met(middle, 0.3, "< 0.3 s")


def main() -> None:
    keep = (False, "keep the files, so that the run is not made again")
    steps = (20, "written by `store`")
    parser = options(
        __doc__, rollouts=1_000_000, folder=Path("/tmp/bench-history"), keep=keep, steps=steps
    )
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help="store, queries, pages (default: all)"
    )
    given = parser.parse_args()
    if unknown := {*given.parts} - {"store", "queries", "pages"}:
        parser.error(f"{', '.join(unknown)} is none of store, queries, pages")
    given.folder.mkdir(parents=True, exist_ok=True)
    parts: dict[str, Callable[[], Iterator[Row]]] = {
        "store": lambda: store(given.folder, given.steps),
        "queries": lambda: queries(given.folder, given.rollouts),
        "pages": lambda: pages(fill(given.folder, given.rollouts)),
    }
    rows = (row for part in given.parts or parts for row in parts[part]())
    show(None, ("what", "measured", "target"), rows)
    if not given.keep:
        for path in (*given.folder.glob("made-up-*"), *given.folder.glob("store.duckdb*")):
            path.unlink()
        with contextlib.suppress(OSError):  # other files are in it, which are not ours
            given.folder.rmdir()


if __name__ == "__main__":
    main()
