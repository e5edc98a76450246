"""Reading the history back into nouns. Each function takes an open connection and leaves it open."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import duckdb

from rtl_core.history.columns import keys_table, noun, read
from rtl_core.history.records import (
    EvaluationRecord,
    RunRecord,
    StepState,
    StoredProblem,
    StoredRollout,
    TeacherRecord,
    ValidationRecord,
)
from rtl_core.history.rows import PLACE_COLUMNS, Place, to_verdict
from rtl_core.learning.credit import Credit
from rtl_core.learning.reward import Reward
from rtl_core.types.rollout import PolicyName, Purpose, Rollout


def known(con: duckdb.DuckDBPyConnection, table: str, keys: Iterable[str], column: str = "rollout") -> list[str]:
    """Those of `keys` that `table` holds."""
    asked = keys_table(keys)  # noqa: F841  (DuckDB finds it by its name)
    return [key for (key,) in con.execute(f"SELECT {column} FROM {table} WHERE {column} IN (FROM asked)").fetchall()]


def places(con: duckdb.DuckDBPyConnection, keys: Iterable[str]) -> dict[str, Place]:
    """Rollout key -> its place, for those of `keys` that are stored."""
    asked = keys_table(keys)  # noqa: F841  (DuckDB finds it by its name)
    sql = f"SELECT rollout, {', '.join(PLACE_COLUMNS)} FROM rollouts WHERE rollout IN (FROM asked)"
    return {row[0]: row[1:] for row in con.execute(sql).fetchall()}


def runs(con: duckdb.DuckDBPyConnection, name: str | None = None) -> list[RunRecord]:
    """All runs newest first, or the one of that name."""
    rows = read(con, "runs", "? IS NULL OR run = ? ORDER BY created_at DESC, run", [name, name])
    return [noun(RunRecord, row, name=row["run"]) for row in rows]


def problems_of(con: duckdb.DuckDBPyConnection, run: str) -> list[StoredProblem]:
    """The run's problems by split and position."""
    rows = read(con, "run_problems", "run = ? ORDER BY split, position NULLS LAST, problem_id", [run])
    used = "fingerprint IN (SELECT fingerprint FROM run_problems WHERE run = ?)"
    records = {row["fingerprint"]: row["record"] for row in read(con, "problems", used, [run])}
    return [noun(StoredProblem, row, position=row["position"], record=records[row["fingerprint"]]) for row in rows]


def validations(con: duckdb.DuckDBPyConnection, tools_key: str) -> dict[str, ValidationRecord]:
    """Problem fingerprint -> what validation with those tools found."""
    rows = read(con, "validations", "tools_key = ?", [tools_key])
    return {row["fingerprint"]: noun(ValidationRecord, row) for row in rows}


def cpu_of_known_good(con: duckdb.DuckDBPyConnection) -> tuple[dict[str, float], dict[str, float]]:
    """As `History.cpu_of_known_good`."""
    golden = con.execute(
        "SELECT fingerprint, arg_max(CAST(evidence->'golden'->>'cpu_s' AS DOUBLE), checked_at) AS cpu_s"
        " FROM validations GROUP BY ALL HAVING cpu_s IS NOT NULL"
    ).fetchall()
    passing = con.execute(
        "SELECT fingerprint, max(cpu_s) AS cpu_s FROM verdicts JOIN run_problems USING (run, problem_id)"
        " WHERE outcome = 'passed' GROUP BY ALL HAVING cpu_s IS NOT NULL"
    ).fetchall()
    return dict(golden), dict(passing)


def steps(con: duckdb.DuckDBPyConnection, run: str) -> list[StepState]:
    """The run's steps in order, each with its problems in order."""
    problems = defaultdict(list)
    for row in read(con, "step_problems", "run = ? ORDER BY step, position", [run]):
        problems[row["step"]].append(row["problem_id"])
    rows = read(con, "steps", "run = ? ORDER BY step", [run])
    return [noun(StepState, row, problem_ids=tuple(problems[row["step"]])) for row in rows]


def evaluations(con: duckdb.DuckDBPyConnection, condition: str, value: str) -> list[EvaluationRecord]:
    """Evaluations that meet a condition with one parameter, by step, policy and key."""
    rows = read(con, "evaluations", f"{condition} ORDER BY step, policy, evaluation", [value])
    return [noun(EvaluationRecord, row, key=row["evaluation"]) for row in rows]


def rollouts_of(
    con: duckdb.DuckDBPyConnection, run: str, place: int | str, purpose: Purpose, policy: PolicyName | None, turn: int
) -> list[StoredRollout]:
    """As `History.rollouts_of`."""
    column = "evaluation IS NULL AND step" if isinstance(place, int) else "evaluation"
    condition = f"run = ? AND {column} = ? AND purpose = ? AND turn = ? AND (? IS NULL OR policy = ?)"
    return stored_rollouts(con, condition, [run, place, purpose, turn, policy, policy])


def stored_rollouts(con: duckdb.DuckDBPyConnection, condition: str, params: Sequence[Any]) -> list[StoredRollout]:
    """Rollouts whose row in `rollouts` meets the condition, each with all that later stages recorded of it."""
    heads = read(con, "rollouts", f"{condition} ORDER BY problem_id, sample", params)
    if not heads:
        return []
    keys = [head["rollout"] for head in heads]
    arrays = _by_key(con, "tokens", keys)
    prompts = _by_key(con, "prompts", sorted({head["prompt"] for head in heads}), column="prompt")
    verdicts = _by_key(con, "verdicts", keys)
    stages = _lists(con, "verdict_stages", list(verdicts))
    misses = _lists(con, "interface_mismatches", list(verdicts))
    rewards = _by_key(con, "rewards", list(verdicts))
    terms = _lists(con, "reward_terms", list(rewards), order="rowid")
    scores = _by_key(con, "teacher_scores", keys)
    teacher = _by_key(con, "teacher_tokens", list(scores))
    credits = _by_key(con, "advantages", keys)

    def reward(key: str) -> Reward:
        return noun(Reward, rewards[key], terms={t["term"]: (t["weight"], t["value"]) for t in terms[key]})

    return [
        StoredRollout(
            rollout=noun(Rollout, {**head, **arrays[key]}, prompt_P=prompts[head["prompt"]]["tokens_P"]),
            verdict=to_verdict(verdicts[key], stages[key], misses[key]) if key in verdicts else None,
            reward=reward(key) if key in rewards else None,
            teacher=noun(TeacherRecord, {**scores[key], **teacher[key]}) if key in scores else None,
            credit=noun(Credit, credits[key]) if key in credits else None,
        )
        for key, head in zip(keys, heads, strict=True)
    ]


def _by_key(
    con: duckdb.DuckDBPyConnection, table: str, keys: Iterable[str], column: str = "rollout"
) -> dict[str, dict[str, Any]]:
    return {row[column]: row for row in read(con, table, f"{column} IN (FROM asked)", keys=keys)}


def _lists(
    con: duckdb.DuckDBPyConnection, table: str, keys: Iterable[str], order: str = "position"
) -> defaultdict[str, list[dict[str, Any]]]:
    found: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in read(con, table, f"rollout IN (FROM asked) ORDER BY {order}", keys=keys):
        found[row["rollout"]].append(row)
    return found
