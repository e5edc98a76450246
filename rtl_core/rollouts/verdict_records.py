"""The verdict records of a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rtl_core.errors import HistoryError
from rtl_core.history.store import History
from rtl_core.rollouts.resumable import problems_as_recorded
from rtl_core.run.folder import config_of
from rtl_grader.extraction.answer_to import answer_to
from rtl_grader.grading.answer_file import AnswerLine
from rtl_grader.grading.cache import cache_key
from rtl_grader.grading.grader import seeds_for
from rtl_grader.grading.verdict_record import Conditions, answer_key, verdict_record
from rtl_grader.settings import limits_of
from rtl_grader.types.verdict import Outcome, Stage


def records_of(history: History, run: str) -> Iterator[dict[str, Any]]:
    """Yield the record of every verdict of a run: training by step, then evaluations. HistoryError if a
    problem is missing."""
    section = config_of(history, run).grading
    problems = problems_as_recorded(history, run)
    places: list[int | str] = [state.step for state in history.steps(run)]
    for place in [*places, *(evaluation.key for evaluation in history.evaluations(run))]:
        for stored in history.rollouts_of(run, place):
            rollout, verdict = stored.rollout, stored.verdict
            if verdict is None or verdict.outcome is Outcome.INFRASTRUCTURE_ERROR:
                continue
            if rollout.problem_id not in problems:
                raise HistoryError(
                    f"{history.path} has lost problem {rollout.problem_id!r}",
                    "restore it from a snapshot",
                )
            problem = problems[rollout.problem_id]
            line = AnswerLine(0, problem, rollout.sample, answer_to(problem, rollout.text))
            conditions = Conditions(
                seed=section.seed,
                seeds=seeds_for(problem, section.seeds),
                limits=limits_of(section),
                until=Stage(section.last_stage(rollout.purpose, rollout.step)),
            )
            key = cache_key(
                problem,
                line.answer.files,
                executor=verdict.executor,
                tools=verdict.tools,
                seed=conditions.seed,
                seeds=conditions.seeds,
                limits=conditions.limits,
                until=conditions.until,
            )
            yield verdict_record(line, verdict, answer_key(key, line.answer), conditions)
