"""`History`: everything that happened in the runs, in one DuckDB file.

Only the flow's process writes. Each `record_*` call is a short transaction (open, write, close) and is idempotent:
the same key is never stored twice. Several calls share one transaction inside `with history.batch():`, which saves
opening the file each time; do not await or wait for anything inside it, since it locks out all other processes.

Other processes read at any time with `History(path, read_only=True)`; a reader that finds the file locked waits for
milliseconds and retries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from rtl_core.errors import HistoryError
from rtl_core.history import rows
from rtl_core.history.columns import (
    columns_of,
    insert,
    key_conditions,
    naive,
    read,
    table,
    table_names,
)
from rtl_core.history.reading import Reading, known_keys
from rtl_core.history.records import (
    AuditRecord,
    EndedBy,
    EvaluationRecord,
    MessageRecord,
    PlacedProblem,
    RunRecord,
    RunSettings,
    RunStatus,
    StepPlan,
    StepRecord,
    TeacherRecord,
    utc_now,
)
from rtl_core.learning.credit import Credit
from rtl_core.learning.reward import Reward
from rtl_core.types.rollout import Rollout
from rtl_grader.types.verdict import Verdict
from rtl_grader.validation.record import ValidationRecord

_ENDED = ("finished", "failed", "cancelled")


class History(Reading):
    """The history at `path`. Nothing is opened before the first call.

    A writable history creates a missing file; a `read_only` one does not. All methods raise the errors of
    `Transactions`.
    """

    # -- runs

    def start_run(self, run: RunRecord) -> None:
        """Store a new run, or update settings, status and heartbeat of an existing one."""
        with self._writing() as con:
            runs = table("runs", [run], run=run.name)
            insert(con, {"runs": runs}, "OR IGNORE")
            (row,) = runs.select(list(RunSettings.model_fields)).to_pylist()
            columns = ", ".join(f"{column} = ?" for column in row)
            con.execute(f"UPDATE runs SET {columns} WHERE run = ?", [*row.values(), run.name])
            self.set_run_status(run.name, run.status, run.message, run.ended_by)

    def set_run_status(
        self,
        name: str,
        status: RunStatus,
        message: str | None = None,
        ended_by: EndedBy | None = None,
    ) -> None:
        """Store the status of a run; one that has ended gets its `finished_at`, which a finished run keeps
        until it trains again.

        Raises HistoryError for an unknown run.
        """
        now = naive(utc_now())
        with self._writing() as con:
            updated = con.execute(
                "UPDATE runs SET status = $status, message = $message, ended_by = $ended_by, "
                "heartbeat_at = $now, finished_at ="
                " CASE WHEN status IN ('finished', 'running') AND $status IN ('finished', "
                "'running') THEN coalesce(finished_at, $ended)"
                " ELSE $ended END WHERE run = $name RETURNING run",
                {
                    "status": status,
                    "message": message,
                    "ended_by": ended_by,
                    "now": now,
                    "name": name,
                    "ended": now if status in _ENDED else None,
                },
            ).fetchall()
            if not updated:
                raise HistoryError(
                    f"there is no run {name!r} in {self.path}", "call start_run first"
                )

    def record_start(self, name: str, state_path: str, sampler_path: str) -> None:
        """Store the paths of the run's own copy of its start weights."""
        with self._writing() as con:
            con.execute(
                "UPDATE runs SET start_state = ?, start_sampler = ? WHERE run = ?",
                [state_path, sampler_path, name],
            )

    def record_console(self, name: str, url: str) -> None:
        """Store the page of a run's newest trainer in the console of its service."""
        with self._writing() as con:
            con.execute("UPDATE runs SET console = ? WHERE run = ?", [url, name])

    def heartbeat(self, name: str, waits_for: str = "") -> None:
        """Record that a run is alive, and what it waits for. The message of a run that has ended or was
        interrupted is kept."""
        running = "status = 'running' AND NOT starts_with(coalesce(message, ''), 'interrupted')"
        message = f"CASE WHEN {running} THEN nullif(?, '') ELSE message END"
        with self._writing() as con:
            con.execute(
                f"UPDATE runs SET heartbeat_at = ?, message = {message} WHERE run = ?",
                [naive(utc_now()), waits_for, name],
            )

    # -- problems

    def record_problems(self, run: str, rows_: Sequence[PlacedProblem]) -> None:
        """Store (problem, split, position in the curriculum or None), replacing earlier entries of a problem."""
        with self._writing() as con:
            insert(con, rows.problem_tables(run, rows_, utc_now()), "OR REPLACE")

    def place_problems(self, run: str, rows_: Sequence[PlacedProblem]) -> None:
        """Store another split or position of problems that `record_problems` has stored."""
        with self._writing() as con:
            insert(con, {"run_problems": rows.run_problems(run, rows_)}, "OR REPLACE")

    def record_validations(self, results: Sequence[tuple[str, ValidationRecord]]) -> None:
        """Store (run, validation result), one per problem fingerprint and tools."""
        runs, records = map(list, zip(*results, strict=True))
        self._store("validations", records, run=runs)

    # -- epochs and steps

    def plan_epoch(self, run: str, epoch: int, steps: Sequence[StepPlan]) -> None:
        """Plan an epoch's steps. A step that is already planned or trained keeps its plan, so that a resumed run
        finds its rollouts again."""
        now = utc_now()
        with self._writing() as con:
            earlier = {
                s
                for (s,) in con.execute(
                    "SELECT step FROM steps WHERE run = ?", [run]
                ).fetchall()
            }
            fresh = [s for s in steps if s.step not in earlier]
            planned = table(
                "epochs", [], run=[run], epoch=[epoch], n_steps=[len(steps)], planned_at=[now]
            )
            insert(con, {"epochs": planned}, "OR IGNORE")
            head = table("steps", fresh, run=run, epoch=epoch, status="planned", planned_at=now)
            insert(con, {"steps": head, "step_problems": _problems(run, fresh)})

    def plan_step(self, run: str, step: StepPlan) -> None:
        """Replace the problems of a planned step, once they are known."""
        with self._writing() as con:
            con.execute(
                "DELETE FROM step_problems WHERE run = ? AND step = ?", [run, step.step]
            )
            insert(con, {"step_problems": _problems(run, [step])})

    def finish_step(self, step: StepRecord) -> None:
        """Store that a step was trained, with weights, examples, times and metrics, in one transaction."""
        now, place = utc_now(), [step.run, step.step]
        parts = {
            name: table(
                name,
                [step] * len(values),
                **{column: list(values), value: list(values.values())},
            )
            for name, values, column, value in (
                ("step_times", step.times, "stage", "seconds"),
                ("step_metrics", step.metrics, "name", "value"),
            )
        }
        with self._writing() as con:
            plans = read(con, "steps", "run = ? AND step = ?", place)
            planned_at = plans[0]["planned_at"] if plans else now
            trained = table(
                "steps", [step], status="trained", planned_at=planned_at, trained_at=now
            )
            insert(con, {"steps": trained}, "OR REPLACE")
            for part in parts:
                con.execute(f"DELETE FROM {part} WHERE run = ? AND step = ?", place)
            insert(con, parts)
            con.execute(
                "UPDATE runs SET heartbeat_at = ?, finished_at = NULL WHERE run = ?",
                [naive(now), step.run],
            )

    # -- rollouts and facts about them

    def record_rollouts(self, rollouts: Sequence[Rollout]) -> int:
        """Store sampled answers with their tokens; returns how many were new. A known key keeps its first text.

        Raises ValueError when a rollout's tokens and log-probabilities differ in length.
        """
        with self._writing() as con:
            first = {r.key: r for r in reversed(rollouts)}
            stored = set(known_keys(con, "rollouts", list(first)))
            fresh = [r for key, r in reversed(first.items()) if key not in stored]
            tables = rows.rollout_tables(fresh, utc_now())
            prompts = tables["prompts"].column("prompt").to_pylist()
            stored = set(known_keys(con, "prompts", prompts, column="prompt"))
            tables["prompts"] = tables["prompts"].filter(
                pa.array([p not in stored for p in prompts], pa.bool_())
            )
            insert(con, tables)
            return len(fresh)

    def record_messages(self, messages: Sequence[MessageRecord]) -> None:
        """Store messages of conversations; a known message keeps its first text."""
        self._store("messages", messages, conflict="OR IGNORE")

    def set_step_aside(self, run: str, step: int) -> int:
        """Mark the answers of an untrained step, and all facts about them, as set aside. Returns how many they are.

        Their rows get new keys, so that the step can be sampled again. Raises HistoryError for a trained step.
        """
        own = (
            "run = ? AND step = ? AND purpose IN ('train', 'warm_start') AND evaluation IS NULL"
        )
        with self._writing() as con:
            if con.execute(
                "SELECT 1 FROM steps WHERE run = ? AND step = ? AND status = 'trained'",
                [run, step],
            ).fetchall():
                raise HistoryError(
                    f"step {step + 1} of {run!r} is trained: its answers cannot be set aside"
                )
            counted = "SELECT count(*) FROM rollouts WHERE run = ? AND step = ? AND purpose = 'set_aside'"
            ((before,),) = con.execute(counted, [run, step]).fetchall()
            aside = con.sql(
                f"SELECT rollout FROM rollouts WHERE {own}", params=[run, step]
            ).to_arrow_table()
            for name in (name for name in table_names() if "rollout" in columns_of(name)):
                changes = f"rollout = 'set aside {before}/' || rollout"
                if "purpose" in columns_of(name):
                    changes += ", purpose = 'set_aside'"
                con.execute(f"UPDATE {name} SET {changes} WHERE rollout IN (FROM aside)")
        return int(aside.num_rows)

    def record_verdicts(self, verdicts: Sequence[tuple[str, Verdict, Reward | None]]) -> None:
        """Store (rollout key, verdict, reward), replacing earlier verdicts of the rollout; an
        `infrastructure_error` has no reward (None). Raises HistoryError for a key whose rollout is not
        stored."""
        latest = {key: (key, verdict, reward) for key, verdict, reward in verdicts}
        with self._writing() as con:
            tables = rows.verdict_tables(
                list(latest.values()), self._places(con, list(latest)), utc_now()
            )
            _replace(con, "verdicts", tables)

    def record_teacher(self, scores: Sequence[TeacherRecord]) -> None:
        """Store the teacher's log-probabilities and the KL estimates, replacing earlier ones. Raises
        HistoryError for a key whose rollout is not stored."""
        latest = {s.rollout: s for s in scores}
        with self._writing() as con:
            tables = rows.teacher_tables(list(latest.values()), self._places(con, list(latest)))
            _replace(con, "teacher_scores", tables)

    def record_trainer_tokens(
        self, logprobs: Sequence[tuple[str, Sequence[float] | np.ndarray]]
    ) -> None:
        """Store (rollout key, the trainer's log-probabilities of its tokens), replacing earlier ones."""
        latest = dict(logprobs)
        facts = table(
            "trainer_tokens", [], rollout=list(latest), logprobs_T=list(latest.values())
        )
        with self._writing() as con:
            _replace(con, "trainer_tokens", {"trainer_tokens": facts})

    def record_advantages(self, credits: Sequence[tuple[str, Credit]]) -> None:
        """Store (rollout key, credit), replacing earlier credits."""
        latest = dict(credits)
        with self._writing() as con:
            facts = rows.facts(
                "advantages", list(latest.items()), self._places(con, list(latest))
            )
            _replace(con, "advantages", {"advantages": facts})

    def record_regrades(self, label: str, verdicts: Sequence[tuple[str, Verdict]]) -> None:
        """Store new verdicts of stored rollouts under `label`; the verdicts of training are unchanged."""
        latest = [verdict for _, verdict in verdicts]
        with self._writing() as con:
            places = self._places(con, [key for key, _ in verdicts])
            facts = rows.facts(
                "regrades", verdicts, places, label=label, verdict=latest, graded_at=utc_now()
            )
            insert(con, {"regrades": facts}, "OR REPLACE")

    def record_audits(self, audits: Sequence[AuditRecord]) -> None:
        """Store audit results of passed rollouts, replacing earlier ones."""
        self._store("audits", audits)

    def record_evaluation(self, evaluation: EvaluationRecord) -> None:
        """Store an evaluation, or replace its earlier state."""
        self._store("evaluations", [evaluation], evaluation=evaluation.key)

    def record_cached_verdicts(self, verdicts: Sequence[tuple[str, Verdict]]) -> None:
        """Store (cache key, verdict), replacing earlier verdicts."""
        cached = dict(verdicts)
        times = [utc_now()] * len(cached)
        self._store(
            "verdict_cache",
            [],
            key=list(cached),
            verdict=list(cached.values()),
            stored_at=times,
        )

    def _store(
        self,
        name: str,
        records: Sequence[Any],
        *,
        conflict: str = "OR REPLACE",
        **explicit: Any,
    ) -> None:
        with self._writing() as con:
            insert(con, {name: table(name, records, **explicit)}, conflict)

    def _places(
        self, con: duckdb.DuckDBPyConnection, keys: Sequence[str]
    ) -> dict[str, rows.Place]:
        """Mapping of rollout key to its place. Raises HistoryError for a rollout that is not stored."""
        places: dict[str, rows.Place] = {}
        for condition, chunk in key_conditions("rollout", keys):
            sql = f"SELECT rollout, {', '.join(rows.PLACE_COLUMNS)} FROM rollouts WHERE {condition}"
            places.update((row[0], row[1:]) for row in con.execute(sql, chunk).fetchall())
        if missing := [key for key in keys if key not in places]:
            raise HistoryError(
                f"{len(missing)} rollouts are not in {self.path}, first {missing[0]!r}",
                "call record_rollouts first",
            )
        return places


def _replace(con: duckdb.DuckDBPyConnection, head: str, tables: Mapping[str, pa.Table]) -> None:
    """Insert facts about rollouts, after deleting earlier facts about those rollouts that the table `head` contains."""
    keys = tables[head].column("rollout").to_pylist()
    for condition, chunk in key_conditions("rollout", known_keys(con, head, keys)):
        for name in tables:
            con.execute(f"DELETE FROM {name} WHERE {condition}", chunk)
    insert(con, tables)


def _problems(run: str, plans: Sequence[StepPlan]) -> pa.Table:
    """Rows of `step_problems`."""
    return table(
        "step_problems",
        [plan for plan in plans for _ in plan.problem_ids],
        run=run,
        position=[i for plan in plans for i in range(len(plan.problem_ids))],
        problem_id=[problem_id for plan in plans for problem_id in plan.problem_ids],
    )
