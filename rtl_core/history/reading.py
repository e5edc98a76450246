"""Reading the history back into nouns. Each function takes an open connection and leaves it open."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import duckdb

from rtl_core.history.columns import PLACE_COLUMNS, ROLLOUT_COLUMNS, Place
from rtl_core.history.records import (
    EvaluationRecord,
    RunRecord,
    StepState,
    StoredProblem,
    StoredRollout,
    TeacherRecord,
    ValidationRecord,
)
from rtl_core.history.rows import aware, to_step_state, to_verdict
from rtl_core.learning.credit import Credit
from rtl_core.learning.reward import Reward
from rtl_core.types.rollout import Rollout

_CHUNK = 500


def chunks(keys: Sequence[str]) -> Iterator[list[str]]:
    """Keys in lists short enough for an IN list that the primary key's index answers."""
    for start in range(0, len(keys), _CHUNK):
        yield list(keys[start : start + _CHUNK])


def dicts(con: duckdb.DuckDBPyConnection, sql: str, params: Sequence[Any] = ()) -> list[dict[str, Any]]:
    """The answer as one dict a row."""
    return con.sql(sql, params=list(params)).to_arrow_table().to_pylist()


def places(con: duckdb.DuckDBPyConnection, keys: Sequence[str]) -> dict[str, Place]:
    """Rollout key -> its place, for those of `keys` that are stored."""
    found: dict[str, Place] = {}
    for chunk in chunks(keys):
        sql = (
            f"SELECT rollout, {', '.join(PLACE_COLUMNS)} FROM rollouts WHERE rollout IN ({', '.join('?' * len(chunk))})"
        )
        found.update((row[0], row[1:]) for row in con.execute(sql, chunk).fetchall())
    return found


def known(con: duckdb.DuckDBPyConnection, table: str, keys: Sequence[str], column: str = "rollout") -> list[str]:
    """Those of `keys` that `table` holds."""
    found: list[str] = []
    for chunk in chunks(keys):
        sql = f"SELECT {column} FROM {table} WHERE {column} IN ({', '.join('?' * len(chunk))})"
        found += [key for (key,) in con.execute(sql, chunk).fetchall()]
    return found


def first_free_step(con: duckdb.DuckDBPyConnection, run: str) -> int:
    """The first train step after all those of which rollouts are stored."""
    ((last,),) = con.execute("SELECT max(step) FROM rollouts WHERE run = ? AND purpose = 'train'", [run]).fetchall()
    return 0 if last is None else int(last) + 1


def runs(con: duckdb.DuckDBPyConnection, name: str | None = None) -> list[RunRecord]:
    """All runs newest first, or the one of that name."""
    sql = "SELECT * FROM runs WHERE ? IS NULL OR run = ? ORDER BY created_at DESC, run"
    return [
        RunRecord(
            name=r["run"],
            created_at=aware(r["created_at"]),
            status=r["status"],
            config=json.loads(r["config"]),
            config_hash=r["config_hash"],
            seed=r["seed"],
            student=r["student"],
            teacher=r["teacher"],
            problems_hash=r["problems_hash"],
            versions=json.loads(r["versions"]),
            message=r["message"],
            heartbeat_at=aware(r["heartbeat_at"]),
            finished_at=aware(r["finished_at"]),
        )
        for r in dicts(con, sql, [name, name])
    ]


def problems_of(con: duckdb.DuckDBPyConnection, run: str) -> list[StoredProblem]:
    """The run's problems by split and position."""
    sql = (
        "SELECT r.problem_id, r.fingerprint, r.split, r.position, p.record FROM run_problems r"
        " JOIN problems p USING (fingerprint) WHERE r.run = ? ORDER BY r.split, r.position NULLS LAST, r.problem_id"
    )
    return [
        StoredProblem(r["problem_id"], r["fingerprint"], r["split"], r["position"], json.loads(r["record"]))
        for r in dicts(con, sql, [run])
    ]


def validations(con: duckdb.DuckDBPyConnection, tools_key: str) -> dict[str, ValidationRecord]:
    """Problem fingerprint -> what validation with those tools found."""
    return {
        r["fingerprint"]: ValidationRecord(
            fingerprint=r["fingerprint"],
            tools_key=r["tools_key"],
            problem_id=r["problem_id"],
            status=r["status"],
            evidence=json.loads(r["evidence"]),
            tools=json.loads(r["tools"]),
            wall_s=r["wall_s"],
            checked_at=aware(r["checked_at"]),
        )
        for r in dicts(con, "SELECT * FROM validations WHERE tools_key = ?", [tools_key])
    }


def steps(con: duckdb.DuckDBPyConnection, run: str) -> list[StepState]:
    """The run's steps in order, each with its problems in order."""
    sql = (
        "SELECT s.*, p.problem_ids FROM steps s LEFT JOIN (SELECT step, list(problem_id ORDER BY position) AS problem_ids"
        " FROM step_problems WHERE run = ? GROUP BY step) p USING (step) WHERE s.run = ? ORDER BY s.step"
    )
    return [to_step_state(r) for r in dicts(con, sql, [run, run])]


def evaluations(con: duckdb.DuckDBPyConnection, condition: str, value: str) -> list[EvaluationRecord]:
    """Evaluations that meet a condition with one parameter, by step, policy and key."""
    return [
        EvaluationRecord(
            key=r["evaluation"],
            run=r["run"],
            policy=r["policy"],
            step=r["step"],
            split=r["split"],
            status=r["status"],
            n_problems=r["n_problems"],
            samples=r["samples"],
            pass_at_1=r["pass_at_1"],
            lo=r["lo"],
            hi=r["hi"],
            pass_at_k={int(k): v for k, v in json.loads(r["pass_at_k"]).items()},
            by_difficulty=json.loads(r["by_difficulty"]),
            by_family=json.loads(r["by_family"]),
            started_at=aware(r["started_at"]),
            finished_at=aware(r["finished_at"]),
        )
        for r in dicts(con, f"SELECT * FROM evaluations WHERE {condition} ORDER BY step, policy, evaluation", [value])
    ]


def rollouts_of(con: duckdb.DuckDBPyConnection, run: str, place: int | str) -> list[StoredRollout]:
    """All that is stored of a train step (int) or of an evaluation (its key), by problem and sample."""
    if isinstance(place, int):
        return stored_rollouts(con, "run = ? AND purpose = 'train' AND step = ?", [run, place])
    return stored_rollouts(con, "run = ? AND evaluation = ?", [run, place])


def stored_rollouts(con: duckdb.DuckDBPyConnection, condition: str, params: Sequence[Any]) -> list[StoredRollout]:
    """Rollouts whose row in `rollouts` meets the condition, each with all that later stages recorded of it."""
    heads = dicts(con, f"SELECT * FROM rollouts WHERE {condition} ORDER BY problem_id, sample", params)
    keys = [h["rollout"] for h in heads]
    arrays = _by_key(con, "tokens", keys)
    prompts = _by_key(con, "prompts", sorted({h["prompt"] for h in heads}), column="prompt")
    verdicts = _by_key(con, "verdicts", keys)
    stages = _lists(con, "verdict_stages", list(verdicts))
    misses = _lists(con, "interface_mismatches", list(verdicts))
    rewards = _by_key(con, "rewards", list(verdicts))
    terms = _lists(con, "reward_terms", list(rewards), order="rowid")
    scores = _by_key(con, "teacher_scores", keys)
    teacher = _by_key(con, "teacher_tokens", list(scores))
    credits = _by_key(con, "advantages", keys)
    found = []
    for head in heads:
        key = head["rollout"]
        score, credit, reward = scores.get(key), credits.get(key), rewards.get(key)
        found.append(
            StoredRollout(
                rollout=_rollout(head, arrays[key], prompts[head["prompt"]]["tokens_P"]),
                verdict=to_verdict(verdicts[key], stages[key], misses[key]) if key in verdicts else None,
                reward=Reward(total=reward["total"], terms={t["term"]: (t["weight"], t["value"]) for t in terms[key]})
                if reward
                else None,
                teacher=TeacherRecord(
                    rollout=key,
                    logprobs_T=tuple(teacher[key]["logprobs_T"]),
                    k1_mean=score["k1_mean"],
                    k2_mean=score["k2_mean"],
                    k3_mean=score["k3_mean"],
                    n_tokens=score["n_tokens"],
                )
                if score
                else None,
                credit=Credit(credit["reward"], credit["advantage"], credit["counts"]) if credit else None,
            )
        )
    return found


def _rollout(head: dict[str, Any], arrays: dict[str, Any], prompt_P: list[int]) -> Rollout:
    return Rollout(
        **{name: head[name] for name in ROLLOUT_COLUMNS},
        prompt_P=tuple(prompt_P),
        tokens_T=tuple(arrays["tokens_T"]),
        logprobs_T=tuple(arrays["logprobs_T"]),
    )


def _by_key(
    con: duckdb.DuckDBPyConnection, table: str, keys: Sequence[str], column: str = "rollout"
) -> dict[str, dict[str, Any]]:
    found = {}
    for chunk in chunks(keys):
        sql = f"SELECT * FROM {table} WHERE {column} IN ({', '.join('?' * len(chunk))})"
        found.update({row[column]: row for row in dicts(con, sql, chunk)})
    return found


def _lists(
    con: duckdb.DuckDBPyConnection, table: str, keys: Sequence[str], order: str = "position"
) -> defaultdict[str, list[dict[str, Any]]]:
    found: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for chunk in chunks(keys):
        sql = f"SELECT * FROM {table} WHERE rollout IN ({', '.join('?' * len(chunk))}) ORDER BY {order}"
        for row in dicts(con, sql, chunk):
            found[row["rollout"]].append(row)
    return found
