"""The verdict records of a run. Those of episodes hold every turn and call, so that they can be played again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rtl_core.config.episode import Bounds
from rtl_core.history.records import MessageRecord
from rtl_core.history.store import History
from rtl_core.rollouts.resumable import problems_as_recorded
from rtl_core.run.folder import config_of
from rtl_grader.extraction.answer_to import answer_to
from rtl_grader.grading.answer_file import AnswerLine
from rtl_grader.grading.cache import Conditions, cache_key
from rtl_grader.grading.grader import seeds_for
from rtl_grader.grading.verdict_record import answer_key, sealed, verdict_record
from rtl_grader.settings import limits_of
from rtl_grader.types.verdict import Outcome, Stage

_NAMES = "SELECT DISTINCT problem_id FROM rollouts WHERE run = $run"
_TOLD = ("who", "text", "ok", "thought", "call", "n_tokens")
"""Fields of a message that the record of an episode holds."""


def records_of(
    history: History, run: str, evaluation: str | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the record of every verdict of a run: training by step, then evaluations. HistoryError if a
    problem is missing. `evaluation`: only those of the evaluation with this key."""
    config = config_of(history, run)
    section = config.grading
    problems = problems_as_recorded(history, run, history.column(_NAMES, run=run))
    places: list[int | str] = [state.step for state in history.steps(run)]
    places += [one.key for one in history.evaluations(run)]
    for place in places if evaluation is None else [evaluation]:
        for stored in history.rollouts_of(run, place):
            rollout, verdict = stored.rollout, stored.verdict
            if verdict is None or verdict.outcome is Outcome.INFRASTRUCTURE_ERROR:
                continue
            problem = problems[rollout.problem_id]
            line = AnswerLine(0, problem, rollout.sample, answer_to(problem, rollout.text))
            conditions = Conditions(
                seed=section.seed,
                seeds=seeds_for(problem, section.seeds),
                limits=limits_of(section),
                until=Stage(section.last_stage(rollout.purpose, rollout.step)),
            )
            key = cache_key(
                problem, line.answer.files, conditions, verdict.executor, verdict.tools
            )
            record = verdict_record(line, verdict, answer_key(key, line.answer), conditions)
            if rollout.n_turns is not None:
                record = with_episode(record, config.episode, history.messages(rollout.key))
            yield record


def with_episode(
    record: dict[str, Any], bounds: Bounds, messages: Iterable[MessageRecord]
) -> dict[str, Any]:
    """The record of an episode's answer with its limits and messages, sealed again."""
    told = [{name: getattr(one, name) for name in _TOLD} for one in messages]
    return sealed(
        {**record, "episode": {"bounds": bounds.model_dump(mode="json"), "messages": told}}
    )
