"""A made-up run in a history, as large as asked for: what `benchmarks.history` and `benchmarks.view` measure.

`fill` writes it by SQL, and by column names, so that a column that the schema gains later is NULL. `Writer` writes further steps as the
pipeline does, in two transactions.
"""

from __future__ import annotations

import time
from pathlib import Path
from string import Template

import numpy as np

from rtl_core.history import connection, schema
from rtl_core.history.records import RunRecord, StepRecord, TeacherRecord
from rtl_core.history.store import History
from rtl_core.learning.credit import Credit
from rtl_core.learning.reward import Reward
from rtl_core.problems.starter import Split, starter_problems
from rtl_core.types.problem import Problem
from rtl_core.types.rollout import Rollout
from rtl_core.types.verdict import Outcome, Stage, StageResult, Verdict

RUN = "bench"
TRAIN, HELDOUT = 400, 40
"""Problems of each split."""
ALIKE = 20
"""How many problems have the same text: to make a starter problem takes some milliseconds."""
PER_STEP, SAMPLES = 25, 8
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

_PLACE = "rollout, run, purpose, evaluation, epoch, step, problem_id"
_FILL = Template(f"""
CREATE TEMP TABLE place AS SELECT split, problem_id, family, (record ->> '$$.golden.*')[1] AS golden,
    row_number() OVER (PARTITION BY split ORDER BY problem_id) - 1 AS number FROM run_problems JOIN problems USING (fingerprint, problem_id);
CREATE TEMP TABLE trained AS SELECT i, 'train' AS purpose, NULL::VARCHAR AS evaluation, (i // $step // 100)::INTEGER AS epoch,
    (i // $step)::INTEGER AS step, 'train' AS split, (i // $samples) % $train AS number, (i % $samples)::INTEGER AS sample FROM range($n) t(i);
CREATE TEMP TABLE evaluated AS SELECT $n + 1000 * step + i AS i, 'evaluation' AS purpose, format('$run/student/{{:05d}}', step) AS evaluation,
    (step // 100)::INTEGER AS epoch, step::INTEGER AS step, 'heldout' AS split, i // 4 AS number, (i % 4)::INTEGER AS sample
    FROM (SELECT DISTINCT step FROM trained WHERE step % 100 = 0 UNION SELECT 1 + max(step) FROM trained), range(4 * $heldout) t(i);
CREATE TEMP TABLE base AS SELECT a.*, '$run' AS run, problem_id, family, golden, hash(i) % 1000 / 1000.0 AS luck,
    0.2 + 0.7 * step / (1 + max(step) OVER ()) AS skill,
    format('$run/{{}}/{{}}/{{}}', coalesce('eval/' || evaluation, format('step/{{:05d}}', step)), problem_id, sample) AS rollout
    FROM (FROM trained UNION ALL FROM evaluated) a JOIN place USING (split, number);

INSERT INTO validations BY NAME SELECT fingerprint, 'tools' AS tools_key, run, problem_id, 'fit' AS status, '{{}}' AS evidence,
    '{{}}' AS tools, 0.2 AS wall_s, TIMESTAMP '2026-01-01' AS checked_at FROM run_problems;
INSERT INTO epochs BY NAME SELECT run, epoch, count(DISTINCT step)::INTEGER AS n_steps, TIMESTAMP '2026-01-01' AS planned_at
    FROM base WHERE purpose = 'train' GROUP BY run, epoch;
INSERT INTO steps BY NAME SELECT DISTINCT run, step, epoch, 'trained' AS status, TIMESTAMP '2026-01-01' AS planned_at,
    TIMESTAMP '2026-01-01' AS trained_at, 's' AS state_path, 'p' AS sampler_path, 200 AS examples, 17800 AS train_tokens
    FROM base WHERE purpose = 'train';
INSERT INTO step_problems BY NAME SELECT DISTINCT run, step, (number % $per_step)::INTEGER AS position, problem_id
    FROM base WHERE purpose = 'train';
INSERT INTO step_times BY NAME SELECT run, step, stage, 1.0 AS seconds
    FROM steps, (VALUES ('sample'), ('grade'), ('train'), ('total')) v(stage);
INSERT INTO step_metrics BY NAME SELECT run, step, name, 0.05 AS value
    FROM steps, (VALUES ('optim/entropy'), ('teacher_kl'), ('learning/kl_weight')) v(name);
INSERT INTO evaluations BY NAME SELECT evaluation, run, 'student' AS policy, step, 'heldout' AS split, 'done' AS status, $heldout AS n_problems,
    4 AS samples, avg((luck < skill)::INTEGER) AS pass_at_1, pass_at_1 - 0.05 AS lo, pass_at_1 + 0.05 AS hi,
    TIMESTAMP '2026-01-01' AS started_at FROM base WHERE purpose = 'evaluation' GROUP BY evaluation, run, step;
INSERT INTO prompts BY NAME SELECT 'prompt' AS prompt, range(30)::INTEGER[] AS tokens_P;
INSERT INTO rollouts BY NAME SELECT {_PLACE}, sample, step AS policy_step, 'stop' AS stop_reason, 'prompt' AS prompt, 30 AS n_prompt,
    60 AS n_tokens, format('```verilog\n{{}}// line {{}}\n```', golden, i) AS text, TIMESTAMP '2026-01-01' AS recorded_at,
    'student' AS policy, 1 AS turn FROM base;
INSERT INTO verdicts BY NAME SELECT {_PLACE},
    CASE WHEN luck < skill THEN 'passed' WHEN luck > 0.6 THEN 'interface_mismatch' ELSE 'tests_failed' END AS outcome,
    true AS format_ok, luck < skill OR luck <= 0.6 AS interface_ok, true AS syntax_ok, 3 AS tests_passed, 8 AS tests_total,
    CASE WHEN luck < skill THEN [] ELSE [format('test_{{}}.{{}}: AssertionError: result is {{}}, expected 3', family,
        ['reset_value', 'vectors', 'corners', 'order'][(1 + hash(i, 1) % 4)::BIGINT], hash(i, 2) % 16)] END AS reasons,
    'bubblewrap' AS executor, '{{}}' AS tools, 0 AS seed, 0.2 AS wall_s, 0.1 AS cpu_s, false AS cached,
    TIMESTAMP '2026-01-01' AS graded_at FROM base;
INSERT INTO verdict_stages BY NAME SELECT {_PLACE}, position, stage,
    CASE WHEN luck < skill OR position < 1 THEN 'passed' WHEN position = 3 THEN 'skipped' ELSE 'failed' END AS status,
    []::VARCHAR[] AS reasons, 0.1 AS wall_s
    FROM base, (VALUES (0, 'format'), (1, 'interface'), (2, 'syntax'), (3, 'tests')) v(position, stage);
INSERT INTO interface_mismatches BY NAME SELECT {_PLACE}, position, ['missing_port', 'extra_port'][1 + position] AS kind,
    'port_' || (hash(i, position) % 300) AS name, 'input [' || (hash(i) % 7) || ':0]' AS expected, 'nothing' AS got
    FROM base, (VALUES (0), (1)) v(position) WHERE luck >= skill AND luck > 0.6;
INSERT INTO rewards BY NAME SELECT {_PLACE}, 0.4 + 1.2 * (luck < skill)::INTEGER AS total FROM base;
INSERT INTO reward_terms BY NAME SELECT {_PLACE}, term, weight, (luck < skill)::INTEGER AS value
    FROM base, (VALUES ('format', 0.1), ('interface', 0.2), ('syntax', 0.3), ('tests', 1.0)) v(term, weight);
INSERT INTO teacher_scores BY NAME SELECT {_PLACE}, luck AS k1_mean, luck AS k2_mean, luck AS k3_mean, 60 AS n_tokens FROM base;
INSERT INTO advantages BY NAME SELECT {_PLACE}, luck - 0.5 AS advantage, luck AS reward, true AS counts FROM base;
INSERT INTO tokens BY NAME SELECT rollout, range(60)::INTEGER[] AS tokens_T, list_transform(range(60), lambda j: -0.1 * j)::FLOAT[] AS logprobs_T
    FROM base WHERE step < 100;
INSERT INTO teacher_tokens BY NAME SELECT rollout, list_transform(range(60), lambda j: -0.2 * j)::FLOAT[] AS logprobs_T
    FROM base WHERE step < 100;
""")
"""Token arrays of the first 100 steps alone: they stand in tables of their own, and few queries read them."""


def fill(folder: Path, n: int) -> History:
    """A run of `n` training rollouts with an evaluation every 100 steps, unless the file is there already."""
    path = folder / f"made-up-{n}-{schema.current_version()}.duckdb"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        half = path.with_suffix(".part")
        half.unlink(missing_ok=True)
        history = History(half)
        history.start_run(RunRecord(name=RUN, status="running", student="student", teacher="teacher"))
        history.record_problems(RUN, [(p, "train", i) for i, p in enumerate(_problems("train", TRAIN))])
        history.record_problems(RUN, [(p, "heldout", None) for p in _problems("heldout", HELDOUT)])
        sizes = {"n": n, "train": TRAIN, "heldout": HELDOUT, "samples": SAMPLES, "per_step": PER_STEP}
        with connection.connect(half, read_only=False) as con:
            con.execute(_FILL.substitute(sizes, run=RUN, step=PER_STEP * SAMPLES))
        half.rename(path)
    return History(path)


def _problems(split: Split, count: int) -> list[Problem]:
    made = starter_problems(split, -(-count // ALIKE), 0)
    return [
        p.model_copy(update={"id": f"{split}_{number:02d}_{p.id}", "prompt": f"{p.prompt} ({number})"})
        for p in made
        for number in range(ALIKE)
    ]


def rollouts(step: int, problems: int = 12, samples: int = 6, tokens: int = 60, characters: int = 500) -> list[Rollout]:
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


def teacher(r: Rollout) -> TeacherRecord:
    """The teacher's scores of a rollout."""
    q_T = np.asarray(r.logprobs_T, np.float32) - 0.1
    return TeacherRecord(r.key, q_T, 0.1, 0.005, 0.0048, len(q_T))


def write_step(history: History, step: int) -> tuple[float, float]:
    """A step of 12 problems x 6 samples in the pipeline's two transactions; the seconds of each: all rows, which are written while the
    optimizer runs, and the step's own record, which is waited for."""
    batch = rollouts(step)
    scores = [teacher(r) for r in batch]
    start = time.perf_counter()
    with history.batch():
        history.record_rollouts(batch)
        history.record_verdicts([(r.key, VERDICT, REWARD) for r in batch])
        history.record_teacher(scores)
        history.record_advantages([(r.key, Credit(1.6, 0.1, True)) for r in batch])
        history.record_trainer_tokens([(s.rollout, s.logprobs_T) for s in scores])
    middle = time.perf_counter()
    history.finish_step(
        StepRecord(
            run=RUN,
            epoch=step // 100,
            step=step,
            state_path="s",
            sampler_path="p",
            examples=len(batch),
            train_tokens=89 * len(batch),
            times={"total": 4.0},
            metrics={f"metric/{i}": 0.5 for i in range(40)},
        )
    )
    return middle - start, time.perf_counter() - middle


def write_steps(path: str, first: str, count: str, every_s: str) -> None:
    """What a process that writes does, with its arguments: a step each `every_s` seconds, and a line with its seconds."""
    history = History(Path(path))
    for step in range(int(first), int(first) + int(count)):
        start = time.monotonic()
        print(*write_step(history, step), flush=True)
        time.sleep(max(0.0, float(every_s) - (time.monotonic() - start)))
