"""What the history costs: storing rollouts, asking a million of them, reading while somebody writes, a demo step's share.

    python -m benchmarks.history [store queries readers step] [--rollouts 1000000] [--folder /tmp/bench-history] [--db runs/history.duckdb]

Without names all parts run (about four minutes on two cores, 2 GB of disk). Figures are wall time, which counts on an
otherwise idle machine, and CPU time, which says as much on a busy one. `step` is what the writes of one demo step cost
(12 problems × 6 samples, in the two transactions that the pipeline makes: all rows while the optimizer runs, and the step's own
record, which is waited for) and, with --db, the shares of a real run's steps as that run recorded them: the time that steps waited
for the history, and its CPU time of all cores.

Not covered: what building the rollout objects costs the pipeline; token arrays in the million (they stand in tables of
their own; `kl-by-position` alone reads them, from a sample).
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from rtl_core.history import connection
from rtl_core.history.named_queries import named_queries
from rtl_core.history.records import RunRecord, StepPlan, StepRecord, TeacherRecord
from rtl_core.history.store import History
from rtl_core.learning.credit import Credit
from rtl_core.learning.reward import Reward
from rtl_core.types.rollout import Rollout
from rtl_core.types.verdict import Outcome, Stage, StageResult, Verdict

TARGETS = {"store": 0.5e-3, "query": 1.0, "reader": 0.5, "share": 0.02}


def rollouts(run: str, step: int, problems: int, samples: int, tokens: int, characters: int) -> list[Rollout]:
    """One step's rollouts."""
    rng = np.random.default_rng(step)
    line = "assign q = a ^ b; // made up\n"
    return [
        Rollout(
            run=run,
            purpose="train",
            epoch=step // 100,
            step=step,
            problem_id=f"starter_problem_{p:05d}",
            sample=s,
            prompt_P=tuple(range(p, p + 30)),
            tokens_T=tuple(rng.integers(0, 100_000, tokens).tolist()),
            logprobs_T=tuple((-rng.exponential(0.3, tokens)).tolist()),
            stop_reason="stop",
            text=f"{step} {p} {s} " + (line * (characters // len(line) + 1))[:characters],
            policy_step=step,
        )
        for p in range(problems)
        for s in range(samples)
    ]


def teacher(r: Rollout) -> TeacherRecord:
    """The teacher's scores of a rollout."""
    q_T = np.asarray(r.logprobs_T, np.float32) - 0.1
    return TeacherRecord(r.key, q_T, 0.1, 0.005, 0.0048, len(q_T))


VERDICT = Verdict(
    outcome=Outcome.PASSED,
    stages=tuple(StageResult(stage=stage, status="passed", wall_s=0.05) for stage in Stage),
    tests_passed=8,
    tests_total=8,
    executor="bubblewrap",
    tools={"iverilog": "11.0"},
    wall_s=0.2,
)
REWARD = Reward(
    total=1.6, terms={"format": (0.1, 1.0), "interface": (0.2, 1.0), "syntax": (0.3, 1.0), "tests": (1.0, 1.0)}
)


def store(folder: Path) -> list[tuple[str, str, str]]:
    """10,000 rollouts of 5 KB and 2 × 2,000 numbers, a step of 64 problems × 8 samples a transaction; then the teacher's."""
    history = History(folder / "store.duckdb")
    history.start_run(RunRecord(name="bench"))
    seconds = {"rollouts": 0.0, "the same again": 0.0, "teacher, 2,000 floats": 0.0, "verdicts and rewards": 0.0}
    cpu = 0.0
    total = 0
    for step in range(20):
        batch = rollouts("bench", step, 64, 8, 2_000, 5_000)
        scores = [teacher(r) for r in batch]
        total += len(batch)
        start, before = time.perf_counter(), time.process_time()
        history.record_rollouts(batch)
        stored = time.perf_counter()
        cpu += time.process_time() - before
        history.record_teacher(scores)
        middle = time.perf_counter()
        history.record_verdicts([(r.key, VERDICT, REWARD) for r in batch])
        seconds["rollouts"] += stored - start
        seconds["teacher, 2,000 floats"] += middle - stored
        seconds["verdicts and rewards"] += time.perf_counter() - middle
        if step % 10 == 0:
            start = time.perf_counter()
            history.record_rollouts(batch)
            seconds["the same again"] += 10 * (time.perf_counter() - start)
    size = history.path.stat().st_size / 1e6
    rows = [(f"store {total:,}: {name}", f"{1e3 * s / total:.3f} ms each", "") for name, s in seconds.items()]
    each = seconds["rollouts"] / total
    rows[0] = (rows[0][0], f"{rows[0][1]} (CPU {1e3 * cpu / total:.3f})", verdict(each, TARGETS["store"], "≤ 0.5 ms"))
    return [*rows, ("file", f"{size:.0f} MB", "")]


PLACE = "rollout, run, purpose, evaluation, epoch, step, problem_id"
FILL = f"""
INSERT INTO problems BY NAME SELECT md5(i::VARCHAR) AS fingerprint, 'starter_problem_' || lpad(i::VARCHAR, 5, '0') AS problem_id,
    'prompt' AS prompt, '{{}}' AS record, TIMESTAMP '2026-01-01' AS first_seen FROM range(2000) t(i);
INSERT INTO run_problems BY NAME SELECT 'bench' AS run, problem_id, fingerprint, 'train' AS split, row_number() OVER () AS position,
    'starter' AS source, 'cid003' AS category, ['easy', 'medium', 'hard'][(1 + hash(problem_id) % 3)::BIGINT] AS difficulty,
    'family_' || (hash(problem_id) % 16) AS family FROM problems;
INSERT INTO validations BY NAME SELECT fingerprint, 'tools' AS tools_key, 'bench' AS run, problem_id, 'fit' AS status, '{{}}' AS evidence,
    '{{}}' AS tools, 0.2 AS wall_s, TIMESTAMP '2026-01-01' AS checked_at FROM problems;
CREATE TEMP TABLE base AS SELECT i, 'bench/step/' || lpad((i // 200)::VARCHAR, 5, '0') || '/starter_problem_'
        || lpad(((i // 8) % 2000)::VARCHAR, 5, '0') || '/' || (i % 8) AS rollout,
    'bench' AS run, 'train' AS purpose, NULL::VARCHAR AS evaluation, (i // 200 // 500)::INTEGER AS epoch, (i // 200)::INTEGER AS step,
    'starter_problem_' || lpad(((i // 8) % 2000)::VARCHAR, 5, '0') AS problem_id, hash(i) % 1000 / 1000.0 AS luck,
    i / $n AS skill FROM range($n) t(i);
INSERT INTO steps BY NAME SELECT DISTINCT run, step, epoch, 'trained' AS status, TIMESTAMP '2026-01-01' AS planned_at,
    TIMESTAMP '2026-01-01' AS trained_at, 's' AS state_path, 'p' AS sampler_path, 200 AS examples, 17800 AS train_tokens FROM base;
INSERT INTO step_problems BY NAME SELECT DISTINCT run, step, ((i // 8) % 25)::INTEGER AS position, problem_id FROM base;
INSERT INTO step_times BY NAME SELECT run, step, stage, 1.0 AS seconds
    FROM steps, (VALUES ('sample'), ('grade'), ('train'), ('total')) v(stage);
INSERT INTO step_metrics BY NAME SELECT run, step, name, 0.5 AS value FROM steps, (VALUES ('optim/entropy'), ('teacher_kl')) v(name);
INSERT INTO rollouts BY NAME SELECT {PLACE}, (i % 8)::INTEGER AS sample, step AS policy_step, 'stop' AS stop_reason, 'prompt' AS prompt,
    30 AS n_prompt, 60 AS n_tokens, 'text ' || i AS text, TIMESTAMP '2026-01-01' AS recorded_at, 'student' AS policy, 1 AS turn FROM base;
INSERT INTO verdicts BY NAME SELECT {PLACE},
    CASE WHEN luck < skill THEN 'passed' WHEN luck > 0.6 THEN 'interface_mismatch' ELSE 'tests_failed' END AS outcome,
    true AS format_ok, luck < skill OR luck <= 0.6 AS interface_ok, true AS syntax_ok, 3 AS tests_passed, 8 AS tests_total,
    ['reason'] AS reasons, 'bubblewrap' AS executor, '{{}}' AS tools, 0 AS seed, 0.2 AS wall_s, 0.1 AS cpu_s, false AS cached,
    TIMESTAMP '2026-01-01' AS graded_at FROM base;
INSERT INTO verdict_stages BY NAME SELECT {PLACE}, position, stage,
    CASE WHEN luck < skill OR position < 1 THEN 'passed' WHEN position = 3 THEN 'skipped' ELSE 'failed' END AS status,
    []::VARCHAR[] AS reasons, 0.1 AS wall_s
    FROM base, (VALUES (0, 'format'), (1, 'interface'), (2, 'syntax'), (3, 'tests')) v(position, stage);
INSERT INTO interface_mismatches BY NAME SELECT {PLACE}, position, ['missing_port', 'extra_port'][1 + position] AS kind,
    'port_' || (hash(i, position) % 300) AS name, 'input [' || (hash(i) % 7) || ':0]' AS expected, 'nothing' AS got
    FROM base, (VALUES (0), (1)) v(position) WHERE luck >= skill AND luck > 0.6;
INSERT INTO rewards BY NAME SELECT {PLACE}, 0.4 + 1.2 * (luck < skill)::INTEGER AS total FROM base;
INSERT INTO reward_terms BY NAME SELECT {PLACE}, term, weight, (luck < skill)::INTEGER AS value
    FROM base, (VALUES ('format', 0.1), ('interface', 0.2), ('syntax', 0.3), ('tests', 1.0)) v(term, weight);
INSERT INTO teacher_scores BY NAME SELECT {PLACE}, luck AS k1_mean, luck AS k2_mean, luck AS k3_mean, 60 AS n_tokens FROM base;
INSERT INTO advantages BY NAME SELECT {PLACE}, luck - 0.5 AS advantage, luck AS reward, true AS counts FROM base;
"""
"""By name, so that a column that the schema gains later is NULL here."""
ARRAYS = """
INSERT INTO tokens BY NAME SELECT rollout, range(60)::INTEGER[] AS tokens_T, list_transform(range(60), lambda j: -0.1 * j)::FLOAT[] AS logprobs_T
    FROM base WHERE step < 100;
INSERT INTO teacher_tokens BY NAME SELECT rollout, list_transform(range(60), lambda j: -0.2 * j)::FLOAT[] AS logprobs_T
    FROM base WHERE step < 100;
"""


def fill(path: Path, n: int) -> History:
    """A run of `n` rollouts without texts, written by SQL, unless the file is there already."""
    if not path.exists():
        half = path.with_suffix(".part")
        half.unlink(missing_ok=True)
        History(half).start_run(RunRecord(name="bench", student="s", teacher="t"))
        with connection.connect(half, read_only=False) as con:
            con.execute(FILL.replace("$n", str(n)))
            con.execute(ARRAYS)
        half.rename(path)
    return History(path)


def queries(folder: Path, n: int) -> list[tuple[str, str, str]]:
    """Each named query over a run of a million rollouts, from opening the file to the last row; median of three."""
    start = time.perf_counter()
    history = fill(folder / f"queries-{n}.duckdb", n)
    size = history.path.stat().st_size / 1e6
    rows = [(f"history of {n:,} rollouts", f"{size:.0f} MB, made in {time.perf_counter() - start:.0f} s", "")]
    for name, query in named_queries().items():
        given = {"from": "0", "to": "99"} if name == "kl-by-position" else {}
        values = query.bind(given, "bench") or None

        def ask(sql: str = query.sql, values: dict | None = values) -> int:
            return history.query(sql, values).num_rows

        seconds, cpu, count = median(ask)
        rows.append(
            (
                f"  {name}",
                f"{seconds:.3f} s (CPU {cpu:.3f}), {count:,} rows",
                verdict(seconds, TARGETS["query"], "< 1 s"),
            )
        )
    batch = rollouts("other", 0, 12, 6, 60, 200)
    start = time.perf_counter()
    history.record_rollouts(batch)
    rows.append(("  72 rollouts more", f"{time.perf_counter() - start:.3f} s", ""))
    return rows


def median(ask: Callable[[], int]) -> tuple[float, float, int]:
    """Median wall and CPU seconds of three calls, and what they return."""
    times, cpu = [], []
    for _ in range(3):
        start, before = time.perf_counter(), time.process_time()
        count = ask()
        times.append(time.perf_counter() - start)
        cpu.append(time.process_time() - before)
    return statistics.median(times), statistics.median(cpu), count


def write_constantly(path: Path) -> None:
    """The writing process of `readers`: a step's rollouts, again and again, without a pause."""
    history = History(path)
    for step in range(100_000):
        batch = rollouts("bench", step, 12, 6, 60, 500)
        with history.batch():
            history.record_rollouts(batch)
            history.record_verdicts([(r.key, VERDICT, REWARD) for r in batch])
            history.record_teacher([teacher(r) for r in batch])
        print(step, flush=True)


def readers(folder: Path, count: int = 300) -> list[tuple[str, str, str]]:
    """How long a reader in another process waits for its answer while one writes without a pause."""
    path = folder / "readers.duckdb"
    path.unlink(missing_ok=True)
    command = [
        sys.executable,
        "-c",
        f"from pathlib import Path; from benchmarks.history import write_constantly; write_constantly(Path({str(path)!r}))",
    ]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert writer.stdout is not None
        writer.stdout.readline()
        reader, waits, first = History(path, read_only=True), [], 0
        start = time.monotonic()
        for i in range(count):
            begin = time.perf_counter()
            steps = reader.query("SELECT count(DISTINCT step) AS n FROM rollouts").column(0).to_pylist()[0]
            waits.append(time.perf_counter() - begin)
            first = first or steps
            time.sleep(0.02 * (i % 3))
        rate = (steps - first) / (time.monotonic() - start)
    finally:
        writer.kill()
        writer.wait()
    p50, p95 = np.percentile(waits, [50, 95])
    return [
        (f"{count} reads beside a writer without pause", f"p50 {1e3 * p50:.0f} ms, p95 {1e3 * p95:.0f} ms, max {1e3 * max(waits):.0f} ms",
         verdict(float(p95), TARGETS["reader"], "p95 < 0.5 s")),
        ("  the writer meanwhile", f"{rate:.1f} steps/s of 72 rollouts", ""),
    ]  # fmt: skip


def step(folder: Path, db: Path | None) -> list[tuple[str, str, str]]:
    """What a demo step's writes cost, and their share in a real run."""
    history = History(folder / "step.duckdb")
    history.start_run(RunRecord(name="bench"))
    history.plan_epoch("bench", 0, [StepPlan(step=s, problem_ids=("p",)) for s in range(30)])
    beside, waited, cpu = [], [], []
    for number in range(30):
        batch = rollouts("bench", number, 12, 6, 60, 300)
        scores = [teacher(r) for r in batch]
        record = StepRecord(
            run="bench", epoch=0, step=number, state_path="s", sampler_path="p", examples=72, train_tokens=72 * 359, times={"total": 1.0},
            metrics={f"metric/{i}": 0.5 for i in range(40)},
        )  # fmt: skip
        history.take_spent()
        start = time.perf_counter()
        with history.batch():
            history.record_rollouts(batch)
            history.record_verdicts([(r.key, VERDICT, REWARD) for r in batch])
            history.record_teacher(scores)
            history.record_advantages([(r.key, Credit(1.6, 0.1, True)) for r in batch])
        middle = time.perf_counter()
        history.finish_step(record)
        beside.append(middle - start)
        waited.append(time.perf_counter() - middle)
        cpu.append(history.take_spent().cpu_s)
    words = f"{1e3 * statistics.median(beside):.0f} ms beside the optimizer, {1e3 * statistics.median(waited):.0f} ms waited for"
    rows = [("a demo step's writes, two transactions", f"{words}; CPU {1e3 * statistics.median(cpu):.0f} ms", "")]
    if db is not None:
        cores = os.cpu_count() or 1
        found = History(db, read_only=True).query(
            "SELECT run, sum(value) FILTER (WHERE name = 'time/store_waited') AS waited, sum(value) FILTER (WHERE name = 'cpu/store') AS cpu,"
            " sum(value) FILTER (WHERE name = 'time/store') AS store, sum(value) FILTER (WHERE name = 'time/total') AS total, count(DISTINCT step) AS steps"
            " FROM step_metrics GROUP BY run HAVING waited IS NOT NULL ORDER BY run"
        )
        for row in found.to_pylist():
            of = f"of {row['total'] / row['steps']:.1f} s"
            for name, share in (
                ("waited for", row["waited"] / row["total"]),
                ("CPU", row["cpu"] / row["total"] / cores),
            ):
                cell = f"{share:.1%} {of}" if name == "waited for" else f"{share:.1%} of {cores} cores"
                rows.append(
                    (f"{name} in the steps of run {row['run']}", cell, verdict(share, TARGETS["share"], "< 2 %"))
                )
            rows.append(
                (
                    f"  inside the database, mostly beside other work, run {row['run']}",
                    f"{row['store'] / row['total']:.1%} {of}",
                    "",
                )
            )
    return rows


def verdict(value: float, limit: float, words: str) -> str:
    """Whether a target is met."""
    return f"{words}: {'yes' if value <= limit else 'NO'}"


def main() -> None:
    """Run the parts that were asked for and print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="store, queries, readers, step (default: all)")
    parser.add_argument("--rollouts", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/bench-history"))
    parser.add_argument(
        "--keep", action="store_true", help="keep the files, so that `queries` need not be filled again"
    )
    parser.add_argument("--db", type=Path)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    parts: dict[str, Callable[[], list[tuple[str, str, str]]]] = {
        "store": lambda: store(options.folder),
        "queries": lambda: queries(options.folder, options.rollouts),
        "readers": lambda: readers(options.folder),
        "step": lambda: step(options.folder, options.db),
    }
    table = Table("what", "measured", "target", box=box.SIMPLE_HEAD)
    for name in ("store.duckdb", "step.duckdb"):
        (options.folder / name).unlink(missing_ok=True)
    for part in options.parts or parts:
        for row in parts[part]():
            table.add_row(*row)
    Console(width=120).print(table)
    if not options.keep:
        shutil.rmtree(options.folder)


if __name__ == "__main__":
    main()
