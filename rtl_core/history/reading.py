"""Reads records from the history."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from rtl_core.errors import HistoryError
from rtl_core.history.columns import Row, from_row, key_conditions, read
from rtl_core.history.records import (
    EvaluationRecord,
    MessageRecord,
    RunRecord,
    StepState,
    StoredProblem,
    StoredRollout,
    TeacherReading,
    TeacherRecord,
)
from rtl_core.history.rows import to_verdict
from rtl_core.history.transactions import Transactions
from rtl_core.learning.credit import Credit
from rtl_core.learning.reward import Reward
from rtl_core.types.rollout import PolicyName, Purpose, Rollout
from rtl_grader.validation.record import ValidationRecord
from rtl_grader.words import did_you_mean

Params = Sequence[Any] | Mapping[str, Any] | None
_METRICS = """
SELECT step, map_from_entries(list((name, value) ORDER BY name)) AS metrics FROM step_metrics
WHERE run = $run AND step >= $first AND ($last IS NULL OR step <= $last) GROUP BY step ORDER BY step
"""
_STEPS = """
SELECT s.*, p.problem_ids FROM steps s LEFT JOIN (
    SELECT step, list(problem_id ORDER BY position) AS problem_ids FROM step_problems WHERE run = $run GROUP BY step) p
USING (step) WHERE s.run = $run ORDER BY s.step
"""
_PROBLEMS = """
SELECT r.problem_id, fingerprint, r.split, r.position, p.record FROM run_problems r JOIN problems p USING (fingerprint)
WHERE r.run = $run ORDER BY r.split, r.position NULLS LAST, r.problem_id
"""
_NEAREST_ROLLOUTS = """
SELECT rollout FROM rollouts ORDER BY jaro_winkler_similarity(rollout, $key) DESC, rollout LIMIT 3
"""

_PROBLEM = """
SELECT p.record FROM run_problems r JOIN problems p USING (fingerprint)
WHERE r.run = ? AND r.problem_id = ?
"""
_GOLDEN_CPU = """
SELECT fingerprint, arg_max(CAST(evidence->'golden'->>'cpu_s' AS DOUBLE), checked_at) AS cpu_s
FROM validations GROUP BY ALL HAVING cpu_s IS NOT NULL
"""
_PASSING_CPU = """
SELECT fingerprint, max(cpu_s) AS cpu_s FROM verdicts JOIN run_problems USING (run, problem_id)
WHERE outcome = 'passed' GROUP BY ALL HAVING cpu_s IS NOT NULL
"""


class Reading(Transactions):
    """The read access of a history. All methods raise the errors of `Transactions`."""

    def run(self, name: str) -> RunRecord | None:
        """The run of that name, or None."""
        return next((record for record in self.runs() if record.name == name), None)

    def existing_run(self, name: str) -> RunRecord:
        """The run of that name. Raises HistoryError, with the names of existing runs, if there is none."""
        record = self.run(name)
        if record is None:
            names = [run.name for run in self.runs()]
            listed = f"runs there: {', '.join(names[:8]) or 'none'}"
            raise HistoryError(
                f"there is no run {name!r} in {self.path}", did_you_mean(name, names, listed)
            )
        return record

    def runs(self) -> list[RunRecord]:
        """All runs, newest first; last those that only validated problems."""
        order = "true ORDER BY ends_with(run, '.validation'), created_at DESC, run"
        rows = self._read("runs", order)
        return [from_row(RunRecord, row, name=row["run"]) for row in rows]

    def problems_of(self, run: str) -> list[StoredProblem]:
        """The run's problems, ordered by split and position."""
        rows = self.rows(_PROBLEMS, run=run)
        return [StoredProblem(**{**row, "record": json.loads(row["record"])}) for row in rows]

    def validations(self, tools_key: str) -> dict[str, ValidationRecord]:
        """Mapping of problem fingerprint to the result of validation with these tools."""
        rows = self._read("validations", "tools_key = ?", tools_key)
        return {row["fingerprint"]: from_row(ValidationRecord, row) for row in rows}

    def steps(self, run: str) -> list[StepState]:
        """The run's planned and trained steps in order, each with its problems in order."""
        rows = self.rows(_STEPS, run=run)
        return [from_row(StepState, row, problem_ids=row["problem_ids"] or ()) for row in rows]

    def trained_steps(self, run: str) -> list[StepState]:
        """The run's trained steps, in order."""
        return [state for state in self.steps(run) if state.status == "trained"]

    def steps_done(self, run: str) -> int:
        """The number of the run's trained steps, which are its first ones."""
        return len(self.trained_steps(run))

    def step_metrics(
        self, run: str, first: int = 0, last: int | None = None
    ) -> dict[int, dict[str, float]]:
        """Mapping of step to metrics by name, for the trained steps from `first` to `last` (None: the last
        one), in order."""
        rows = self.rows(_METRICS, run=run, first=first, last=last)
        return {row["step"]: dict(row["metrics"]) for row in rows}

    def rollouts_of(
        self,
        run: str,
        place: int | str,
        purpose: Purpose | None = None,
        *,
        policy: PolicyName | None = None,
    ) -> list[StoredRollout]:
        """The rollouts of a step (int) or an evaluation (its key), ordered by problem and sample: of one
        purpose (by default `train` or `evaluation`) and of one policy (None: all)."""
        purpose = purpose or ("train" if isinstance(place, int) else "evaluation")
        with self._reading() as con:
            column = "evaluation IS NULL AND step" if isinstance(place, int) else "evaluation"
            condition = (
                f"run = ? AND {column} = ? AND purpose = ? AND (? IS NULL OR policy = ?)"
            )
            return _stored_rollouts(con, condition, [run, place, purpose, policy, policy])

    def rollout(self, key: str) -> StoredRollout | None:
        """The rollout with that key, or None."""
        with self._reading() as con:
            return next(iter(_stored_rollouts(con, "rollout = ?", [key])), None)

    def find_rollout(self, key: str) -> StoredRollout:
        """The rollout with that key, or the only one whose key ends with it. Raises HistoryError if there is none."""
        if stored := self.rollout(key):
            return stored
        sql = "SELECT rollout FROM rollouts WHERE ends_with(rollout, $key) ORDER BY rollout LIMIT 6"
        similar = self.column(sql, key=key)
        if len(similar) == 1 and (stored := self.rollout(similar[0])):
            return stored
        hint = f"it could be {', '.join(similar)}"
        if not similar:
            nearest = self.column(_NEAREST_ROLLOUTS, key=key)
            hint = did_you_mean(key, nearest, "`rtl-distill view` shows all")
        raise HistoryError(f"there is no rollout {key!r} in {self.path}", hint)

    def messages(self, rollout: str) -> list[MessageRecord]:
        """The messages of a rollout's conversation, in order; empty for a single-shot answer."""
        rows = self._read("messages", "rollout = ? ORDER BY position", rollout)
        return [from_row(MessageRecord, row) for row in rows]

    def problem_record(self, run: str, problem_id: str) -> dict[str, Any] | None:
        """The recorded problem of a run, or None."""
        records = self.column(_PROBLEM, [run, problem_id])
        return json.loads(records[0]) if records else None

    def evaluation(self, key: str) -> EvaluationRecord | None:
        """The evaluation with that key, or None."""
        return next(iter(self._evaluations("evaluation = ?", key)), None)

    def evaluations(self, run: str) -> list[EvaluationRecord]:
        """The run's evaluations, ordered by step, policy and key."""
        return self._evaluations("run = ?", run)

    def _evaluations(self, condition: str, value: str) -> list[EvaluationRecord]:
        ordered = f"{condition} ORDER BY step, policy, evaluation"
        rows = self._read("evaluations", ordered, value)
        return [from_row(EvaluationRecord, row, key=row["evaluation"]) for row in rows]

    def cached_verdicts(self, most: int) -> list[tuple[str, str]]:
        """(cache key, verdict as JSON) of the `most` newest entries, the oldest first."""
        with self._reading() as con:
            sql = "SELECT key, verdict FROM verdict_cache ORDER BY stored_at DESC, key LIMIT ?"
            return con.execute(sql, [most]).fetchall()[::-1]

    def cpu_of_known_good(self) -> tuple[dict[str, float], dict[str, float]]:
        """Mappings of problem fingerprint to CPU seconds: of the golden answer at its last validation, and
        of the slowest passing answer."""
        with self._reading() as con:
            golden = con.execute(_GOLDEN_CPU).fetchall()
            passing = con.execute(_PASSING_CPU).fetchall()
        return dict(golden), dict(passing)

    def _read(self, table: str, condition: str, *params: Any) -> list[Row]:
        with self._reading() as con:
            return read(con, table, condition, params)

    def query(self, sql: str, params: Params = None) -> pa.Table:
        """The result of one reading SQL statement. Raises HistoryError with DuckDB's message when it fails."""
        try:
            with self._reading() as con:
                relation = con.sql(sql, params=params)
                if relation is None:
                    raise HistoryError(
                        "that statement returns no rows",
                        "use SELECT, FROM, SUMMARIZE, DESCRIBE ...",
                    )
                return relation.to_arrow_table()
        except duckdb.Error as error:
            raise HistoryError(
                str(error), "`rtl-distill query --schema` prints all tables and views"
            ) from error

    def rows(self, sql: str, params: Params = None, /, **named: Any) -> list[Row]:
        """The rows of such a statement; `named` are its `$name` parameters."""
        rows: list[Row] = self.query(sql, params or named or None).to_pylist()
        return rows

    def column(self, sql: str, params: Params = None, /, **named: Any) -> list[Any]:
        """The first column of such a statement's result; `named` as in `rows`."""
        values: list[Any] = self.query(sql, params or named or None).column(0).to_pylist()
        return values


def known_keys(
    con: duckdb.DuckDBPyConnection, table: str, keys: Iterable[str], column: str = "rollout"
) -> list[str]:
    """The keys among `keys` that `table` contains."""
    stored: list[str] = []
    for condition, chunk in key_conditions(column, keys):
        sql = f"SELECT {column} FROM {table} WHERE {condition}"
        stored += [key for (key,) in con.execute(sql, chunk).fetchall()]
    return stored


def _stored_rollouts(
    con: duckdb.DuckDBPyConnection, condition: str, params: Sequence[Any]
) -> list[StoredRollout]:
    """The rollouts that meet the condition, each with everything that later stages recorded."""
    heads = read(con, "rollouts", f"{condition} ORDER BY problem_id, sample", params)
    if not heads:
        return []
    keys, steps = [head["rollout"] for head in heads], [head["step"] for head in heads]
    arrays = _by_key(con, "tokens", keys)
    prompts = _by_key(
        con, "prompts", sorted({head["prompt"] for head in heads}), column="prompt"
    )
    verdicts = _by_key(con, "verdicts", keys)
    stages = _lists(con, "verdict_stages", list(verdicts), steps)
    misses = _lists(con, "interface_mismatches", list(verdicts), steps)
    rewards = _by_key(con, "rewards", list(verdicts))
    terms = _lists(con, "reward_terms", list(rewards), steps, order="rowid")
    scores = _by_key(con, "teacher_scores", keys)
    teacher = _by_key(con, "teacher_tokens", list(scores))
    readings = _by_key(con, "teacher_readings", list(scores))
    credits = _by_key(con, "advantages", keys)
    audits = _by_key(con, "audits", list(rewards))

    def reward(key: str) -> Reward:
        return from_row(
            Reward,
            rewards[key],
            terms={t["term"]: (t["weight"], t["value"]) for t in terms[key]},
        )

    def reading(key: str) -> TeacherReading:
        spans = np.array(readings[key]["spans"], np.int32).reshape(-1, 4)
        return from_row(TeacherReading, readings[key], spans_S4=spans)

    return [
        StoredRollout(
            rollout=from_row(
                Rollout, {**head, **arrays[key]}, prompt_P=prompts[head["prompt"]]["tokens_P"]
            ),
            verdict=to_verdict(verdicts[key], stages[key], misses[key])
            if key in verdicts
            else None,
            reward=reward(key) if key in rewards else None,
            teacher=from_row(
                TeacherRecord,
                {**scores[key], **teacher[key]},
                reading=reading(key) if key in readings else None,
            )
            if key in scores
            else None,
            credit=from_row(Credit, credits[key]) if key in credits else None,
            audit=audits[key]["result"] if key in audits else None,
        )
        for key, head in zip(keys, heads, strict=True)
    ]


def _by_key(
    con: duckdb.DuckDBPyConnection, table: str, keys: Iterable[str], column: str = "rollout"
) -> dict[str, Row]:
    parts = key_conditions(column, keys)
    rows = (row for condition, chunk in parts for row in read(con, table, condition, chunk))
    return {row[column]: row for row in rows}


def _lists(
    con: duckdb.DuckDBPyConnection,
    table: str,
    keys: Iterable[str],
    steps: Sequence[int],
    order: str = "position",
) -> defaultdict[str, list[Row]]:
    """Rows of a table with several rows per rollout. It has no index on `rollout` alone; the range of
    `steps` avoids reading the whole table."""
    lists: defaultdict[str, list[Row]] = defaultdict(list)
    for condition, chunk in key_conditions("rollout", keys):
        here = f"{condition} AND step BETWEEN ? AND ? ORDER BY {order}"
        for row in read(con, table, here, [*chunk, min(steps), max(steps)]):
            lists[row["rollout"]].append(row)
    return lists
