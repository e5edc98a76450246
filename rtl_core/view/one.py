"""Everything about a rollout: problem, answer, verdict, reward, and the answers that it can be compared with."""

from __future__ import annotations

from dataclasses import dataclass, field

from rtl_core.errors import HistoryError
from rtl_core.history.columns import Row
from rtl_core.history.records import MessageRecord, RunRecord, StoredRollout
from rtl_core.history.store import History
from rtl_core.reporting.rollout import audit_of, level_of
from rtl_grader.extraction.answer_to import answer_to
from rtl_grader.types.answer import Answer
from rtl_grader.types.problem import Problem

AGAINST: dict[str, str] = {"golden": "the golden answer", "passing": "a passing answer"}

_GROUP = """
SELECT r.rollout, r.sample, v.outcome, w.total AS reward
FROM rollouts r LEFT JOIN verdicts v USING (rollout) LEFT JOIN rewards w USING (rollout)
WHERE r.run = $run AND r.problem_id = $problem AND r.step = $step AND r.evaluation IS NOT DISTINCT FROM $evaluation
AND r.purpose = $purpose ORDER BY r.sample
"""
_PASSING = """
SELECT rollout, text FROM rollouts WHERE rollout = (
    SELECT rollout FROM verdicts
    WHERE run = $run AND problem_id = $problem AND outcome = 'passed' AND rollout <> $rollout
    ORDER BY step <> $step OR purpose <> $purpose OR evaluation IS DISTINCT FROM $evaluation,
             abs(step - $step), rollout LIMIT 1)
"""


@dataclass
class RolloutDetails:
    """A rollout with everything that its page shows."""

    stored: StoredRollout
    run: RunRecord | None
    problem: Problem | None
    answer: Answer | None
    """The files in the response; None if the problem is not stored."""
    group: list[Row]
    metrics: dict[str, float]
    audit: Row | None
    regrades: list[Row]
    level: str | None
    """The kind of failure in words; None if it did not fail."""
    others: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Answers that it can be compared with: key of `AGAINST` -> (key of that rollout or "", response)."""
    messages: list[MessageRecord] = field(default_factory=list)
    """The messages of its conversation, if it has one."""


def details_of(history: History, key: str) -> RolloutDetails:
    """Everything that is stored about a rollout, read in one transaction. Raises HistoryError for an unknown key."""
    with history.reading():
        stored = history.rollout(key)
        if stored is None:
            raise HistoryError(
                f"there is no rollout {key!r} in {history.path}",
                "search by run, problem or text",
            )
        r = stored.rollout
        place = {
            "run": r.run,
            "problem": r.problem_id,
            "step": r.step,
            "evaluation": r.evaluation,
            "purpose": r.purpose,
        }
        record = history.problem_record(r.run, r.problem_id)
        problem = None if record is None else Problem.model_validate(record)
        details = RolloutDetails(
            stored,
            history.run(r.run),
            problem,
            None,
            history.rows(_GROUP, **place),
            history.step_metrics(r.run, r.step, r.step).get(r.step, {}),
            audit_of(history, r.key),
            history.rows(
                "SELECT label, outcome, tests_passed, tests_total, seed FROM regrades WHERE rollout = $key",
                key=r.key,
            ),
            level_of(history, r),
            messages=history.messages(r.key),
        )
        for row in history.rows(_PASSING, **place, rollout=r.key):
            details.others["passing"] = (row["rollout"], row["text"])
    if problem is not None:
        details.answer = answer_to(problem, r.text)
        if problem.golden:
            details.others["golden"] = ("", "")
    return details


def other_files(details: RolloutDetails, against: str) -> dict[str, str]:
    """Files of the compared answer: path -> text."""
    assert details.problem is not None
    if against == "golden":
        return dict(details.problem.golden or {})
    return answer_to(details.problem, details.others[against][1]).files
