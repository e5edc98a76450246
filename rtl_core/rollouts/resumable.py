"""Shared parts of commands that process many items and may be stopped and repeated: `grade again`,
`grade audit` and `problems validate`.

Each skips items that are already done. Shared is the choice among a run's rollouts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Literal

from pydantic import BaseModel, ConfigDict, NonNegativeInt

from rtl_core.errors import HistoryError, InfrastructureError
from rtl_core.history.store import History
from rtl_core.types.numbers import Count
from rtl_grader.types.problem import Problem

# The order is deterministic, so that a limit always chooses the same rollouts.
_CHOSEN = """
WITH chosen AS (
    SELECT r.rollout, r.problem_id FROM rollouts r JOIN verdicts v USING (rollout)
    WHERE r.run = $run AND ($purpose = 'all' OR r.purpose = $purpose) AND r.step BETWEEN $first_step AND $last_step
      AND (v.outcome = 'passed' OR NOT $passed)
    ORDER BY hash(r.rollout), r.rollout LIMIT $most)
SELECT problem_id, list(rollout ORDER BY rollout) AS rollouts FROM chosen GROUP BY problem_id ORDER BY problem_id
"""
_TEXTS = """
SELECT rollout, text FROM rollouts
WHERE run = $run AND problem_id = $problem_id AND list_contains($among, rollout) ORDER BY rollout
"""


class Choice(BaseModel):
    """Which of a run's graded rollouts to process."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    purpose: Literal["all", "train", "evaluation"] = "all"
    """Training rollouts, those of evaluations, or all."""
    first_step: NonNegativeInt = 0
    last_step: NonNegativeInt = 2**31 - 1
    most: Count = 2**31 - 1
    """Maximum number of rollouts."""

    def of(self, history: History, run: str, *, passed: bool = False) -> dict[str, list[str]]:
        """Mapping of problem id to rollouts; with `passed` only those that passed."""
        rows = history.rows(_CHOSEN, run=run, passed=passed, **self.model_dump())
        return {row["problem_id"]: row["rollouts"] for row in rows}


ALL = Choice()


def problems_as_recorded(
    history: History, run: str, names: Collection[str] | None = None
) -> dict[str, Problem]:
    """Mapping of id to the problems of these `names` (None: all) as recorded, in order of split and
    curriculum. HistoryError if one is missing."""
    records = {row.problem_id: row.record for row in history.problems_of(run)}
    if missing := sorted(set(names or ()) - records.keys()):
        raise HistoryError(
            f"{history.path} has lost problem {missing[0]!r} of run {run!r}",
            "restore it from a snapshot",
        )
    return {
        # Problems with equal content share a row.
        name: Problem.model_validate({**row, "id": name})
        for name, row in records.items()
        if names is None or name in names
    }


def texts_of(
    history: History, run: str, problem_id: str, among: Collection[str]
) -> dict[str, str]:
    """Mapping of rollout to text, `among` these rollouts of one problem."""
    rows = history.rows(_TEXTS, run=run, problem_id=problem_id, among=list(among))
    return {row["rollout"]: row["text"] for row in rows}


def refuse_failed(what: str, items: str, failed: Counter[str]) -> None:
    """Raise InfrastructureError if `what` failed for some `items`; `failed` maps the reason to their number."""
    if failed:
        ((why, _),) = failed.most_common(1)
        raise InfrastructureError(
            f"{what} failed for {failed.total()} {items}: {why}",
            "the same command retries them",
        )
