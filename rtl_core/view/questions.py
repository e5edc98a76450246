"""Queries for runs, steps, groups and lists of rollouts. Results are lists of dicts, aggregated and limited by SQL."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from rtl_core.errors import HistoryError
from rtl_core.history.columns import Row
from rtl_core.history.named_queries import named_query
from rtl_core.history.store import History
from rtl_core.reporting.theme import LEVELS

PAGE = 50
"""Rows per page of a list."""
Name = Annotated[str, Field(max_length=400)]
Page = Annotated[int, Field(ge=0, le=1_000_000)]

_RUNS = """
SELECT r.*, n.rollouts, e.first, e.last FROM ({runs}) r
LEFT JOIN (SELECT run, count(*) AS rollouts FROM rollouts GROUP BY run) n USING (run)
LEFT JOIN (SELECT run, arg_min(pass_at_1, step) AS first, arg_max(pass_at_1, step) AS last
           FROM evaluations WHERE status = 'done' AND policy = 'student' AND split = 'heldout'
           AND template IS NULL AND temperature IS NULL AND top_p IS NULL AND max_tokens IS NULL
           AND turns IS NULL GROUP BY run) e USING (run)
ORDER BY ends_with(r.run, '.validation'), r.created_at DESC, r.run
"""
_STEPS = """
SELECT s.step, s.epoch, s.status, s.examples, a.rollouts, a.pass_rate, r.reward, k.k1, t.seconds
FROM steps s LEFT JOIN pass_by_step a USING (run, step) LEFT JOIN reward_by_step r USING (run, step)
LEFT JOIN teacher_kl_by_step k USING (run, step)
LEFT JOIN step_times t ON t.run = s.run AND t.step = s.step AND t.stage = 'total'
WHERE s.run = $run AND s.step BETWEEN $low AND $high ORDER BY s.step DESC
"""
_SHOWN = """
SELECT step FROM steps WHERE run = $run AND (status = 'trained' OR step <=
    (SELECT max(step) FROM rollouts WHERE run = $run AND purpose = 'train'))
ORDER BY step DESC LIMIT $most OFFSET $skip
"""
_GROUPS = """
SELECT r.problem_id, p.family, p.difficulty, count(*) AS answers,
       count(*) FILTER (WHERE v.outcome = 'passed') AS passed,
       avg(w.total) AS reward, bool_or(a.advantage <> 0) AS signal, avg(t.k1_mean) AS k1,
       list(struct_pack(rollout := r.rollout, outcome := v.outcome) ORDER BY r.sample) AS samples
FROM rollouts r {facts} LEFT JOIN run_problems p ON p.run = r.run AND p.problem_id = r.problem_id
WHERE {where} GROUP BY ALL ORDER BY {order} LIMIT $most OFFSET $skip
"""
_ROWS = """
SELECT r.rollout, r.run, r.purpose, r.evaluation, r.step, r.epoch, r.problem_id, r.sample, r.policy,
       coalesce(m.tokens, r.n_tokens) AS n_tokens, c.turns, c.ended,
       r.stop_reason, left(r.text, 2000) AS text, v.outcome, v.tests_passed, v.tests_total,
       v.reasons[1] AS reason, w.total AS reward, a.advantage, a.counts, t.k1_mean AS k1,
       p.family, p.difficulty, f.level
FROM rollouts r {facts} LEFT JOIN run_problems p ON p.run = r.run AND p.problem_id = r.problem_id
LEFT JOIN (SELECT rollout, level FROM failure_levels WHERE {place}) f USING (rollout)
LEFT JOIN (SELECT rollout, turns, ended FROM episodes WHERE {place}) c USING (rollout)
LEFT JOIN (SELECT rollout, CAST(sum(n_tokens) AS BIGINT) AS tokens FROM messages
           WHERE rollout IN ({holders}) GROUP BY rollout) m USING (rollout)
WHERE r.rollout IN ({holders})
"""

_AMONG = "r.rollout IN (SELECT rollout FROM {} WHERE run = $run AND {})"
_CONDITIONS = {
    "outcome": _AMONG.format(
        "verdicts",
        "(outcome = $outcome OR $outcome = 'failed' AND outcome NOT IN ('passed', 'infrastructure_error'))",
    ),
    "level": _AMONG.format("failure_levels", "level = $outcome"),
    "mistake": _AMONG.format("interface_mismatches", "$mistake IN (kind, kind || ':' || name)"),
    "check": _AMONG.format(
        "verdicts",
        "outcome <> 'passed' AND contains(array_to_string(reasons, chr(10)), $check)",
    ),
    "family": "r.problem_id IN (SELECT problem_id FROM run_problems"
    " WHERE run = $run AND coalesce(family, category) = $family)",
    "problem": "r.problem_id = $problem",
    "evaluation": "r.evaluation = $evaluation",
    "purpose": "r.purpose = $purpose",
    "episodes": _AMONG.format("episodes", "$purpose IN ('episodes', 'episodes: ' || ended)"),
    "doubt": f"""({_AMONG.format("audits", "$doubt = 'audit' AND result = 'different'")}
    OR {_AMONG.format("changed_verdicts", "$doubt = 'regrade'")})""",
    "q": "(contains(lower(r.text), lower($q)) OR r.rollout = $q)",
}
"""Filter -> its condition on `rollouts r`."""
_CHOICES = {
    "family": """
SELECT DISTINCT coalesce(family, category) FROM run_problems WHERE run = $run ORDER BY 1
""",
    "mistake": "SELECT DISTINCT kind FROM interface_mismatches WHERE run = $run ORDER BY 1",
    "purpose": """
SELECT DISTINCT purpose FROM rollouts WHERE run = $run UNION
SELECT DISTINCT unnest(['episodes', 'episodes: ' || ended]) FROM episodes WHERE run = $run ORDER BY 1
""",
    "evaluation": """
SELECT evaluation FROM evaluations WHERE run = $run ORDER BY step DESC, policy LIMIT 50
""",
}
"""Filter -> the query of its possible values."""


def _facts(place: str) -> str:
    """Joins of verdict, reward, advantage and teacher score to each rollout `r`. `place` is a condition on
    columns of all these tables; without it DuckDB reads the whole tables, which takes seconds for millions
    of rollouts."""
    tables = {"verdicts": "v", "rewards": "w", "advantages": "a", "teacher_scores": "t"}
    return " ".join(
        f"LEFT JOIN (SELECT * FROM {table} WHERE {place}) {name} USING (rollout)"
        for table, name in tables.items()
    )


class Filters(BaseModel):
    """Filters of a list of rollouts; an empty field does not filter. Every field is a parameter of the URL."""

    model_config = ConfigDict(frozen=True)
    run: Name = ""
    outcome: Name = ""
    """An outcome, `failed` for all failures, or a kind of failure (LEVELS)."""
    mistake: Name = ""
    """A kind of interface mismatch, or KIND:NAME with the port, parameter or module."""
    check: Name = ""
    """Name of a failing check, or other text in the reasons."""
    family: Name = ""
    problem: Name = ""
    step: Name = ""
    """A step, or FROM-TO."""
    evaluation: Name = ""
    purpose: Name = ""
    """A purpose; or `episodes` (of any purpose), or `episodes: HOW` by how they ended."""
    doubt: Name = ""
    """`audit`: passes that differ from the golden answer; `regrade`: verdicts that changed."""
    q: Name = ""
    """A text that the answer contains, ignoring case, or the key of a rollout."""
    page: Page = 0

    def active(self) -> dict[str, Any]:
        """The fields that are not empty."""
        return {name: value for name, value in self if value}

    def where(self) -> tuple[str, dict[str, Any]]:
        """The condition on `rollouts r` and its parameters. Raises HistoryError for an invalid step."""
        parts = ["r.run = $run"]
        values: dict[str, Any] = {"run": self.run}
        if self.step:
            values["first"], values["last"] = self._steps()
            parts.append("r.step BETWEEN $first AND $last")
            if not (self.evaluation or self.purpose):
                # Evaluations and measurements also have a step: that of their weights.
                parts.append("r.evaluation IS NULL AND r.purpose = 'train'")
        for name, value in self.active().items():
            if self._kind(name) in _CONDITIONS:
                parts.append(_CONDITIONS[self._kind(name)])
                values[name] = value
        return " AND ".join(parts), values

    def _kind(self, name: str) -> str:
        """The condition of `_CONDITIONS` for a field."""
        if name == "outcome" and self.outcome in LEVELS:
            return "level"
        if name == "purpose" and self.purpose.startswith("episodes"):
            return "episodes"
        return name

    def _steps(self) -> tuple[int, int]:
        """The first and the last step. Raises HistoryError if `step` is neither a step nor FROM-TO."""
        first, _, last = self.step.partition("-")
        last = last or first
        if not (first.isdecimal() and last.isdecimal() and len(self.step) < 20):
            raise HistoryError(
                f"{self.step!r} is not a step", "use a number, or FROM-TO such as 10-20"
            )
        return int(first), int(last)


def runs_with_counts(history: History) -> list[Row]:
    """All runs, newest first, with their numbers of rollouts and results."""
    return history.rows(_RUNS.format(runs=named_query("runs").sql))


def steps(history: History, run: str, page: int) -> list[Row]:
    """A page of the run's steps, newest first, plus one row if there are further pages."""
    numbers = history.column(_SHOWN, run=run, most=PAGE + 1, skip=page * PAGE)
    if not numbers:
        return []
    return history.rows(_STEPS, run=run, low=min(numbers), high=max(numbers))


def groups(history: History, filters: Filters, order: str) -> list[Row]:
    """A page of the groups of a step or evaluation, plus one row if there are further pages."""
    where, values = filters.where()
    orders = {"passed": "passed / answers, r.problem_id", "reward": "reward, r.problem_id"}
    place = "run = $run"
    if filters.step:
        place += " AND step BETWEEN $first AND $last"
    if filters.evaluation:
        place += " AND evaluation = $evaluation"
    sql = _GROUPS.format(
        facts=_facts(place), where=where, order=orders.get(order, "min(r.rowid)")
    )
    return history.rows(sql, **values, most=PAGE + 1, skip=filters.page * PAGE)


def count(history: History, filters: Filters) -> int:
    """The number of rollouts of a list."""
    where, values = filters.where()
    (total,) = history.column(f"SELECT count(*) FROM rollouts r WHERE {where}", values)
    return int(total)


def rollouts(
    history: History, filters: Filters, newest: bool = True, most: int = PAGE
) -> list[Row]:
    """A page of a list, ordered by step (newest first), or by problem and sample."""
    where, values = filters.where()
    sample = "r.problem_id, r.sample"
    order = f"r.step DESC, r.evaluation, {sample}" if newest else f"{sample}, r.step"
    sql = f"SELECT rollout, step FROM rollouts r WHERE {where} ORDER BY {order} LIMIT $most OFFSET $skip"
    keys, steps = (
        history.query(sql, {**values, "most": most, "skip": filters.page * PAGE})
        .to_pydict()
        .values()
    )
    if not keys:
        return []
    holders = ", ".join(f"${3 + number}" for number in range(len(keys)))
    place = f"step BETWEEN $1 AND $2 AND rollout IN ({holders})"
    statement = _ROWS.format(facts=_facts(place), place=place, holders=holders)
    rows = history.rows(statement, [min(steps), max(steps), *keys])
    by_key = {row["rollout"]: row for row in rows}
    return [by_key[key] for key in keys if key in by_key]


def ended(history: History, key: str) -> str | None:
    """How an episode ended; None for a single-shot answer."""
    endings = history.column("SELECT ended FROM episodes WHERE rollout = ?", [key])
    return endings[0] if endings else None


def choices(history: History, run: str) -> dict[str, list[str]]:
    """The possible values of the filters for a run."""
    return {name: history.column(sql, run=run) for name, sql in _CHOICES.items()}
