"""Grade a stored rollout again as its run did. Nothing is recorded."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field

from rtl_core.config import RunConfig
from rtl_core.errors import HistoryError
from rtl_core.history.records import StoredRollout
from rtl_core.history.store import History
from rtl_core.run.folder import config_of
from rtl_grader.extraction.answer_to import answer_to
from rtl_grader.grading.executors import make_executor
from rtl_grader.grading.executors.base import Executor
from rtl_grader.grading.jobs import RecordingExecutor
from rtl_grader.grading.limits import KnownGood
from rtl_grader.settings import grader_of
from rtl_grader.types.answer import Answer
from rtl_grader.types.problem import Problem
from rtl_grader.types.verdict import Outcome, Stage, Verdict


@dataclass(frozen=True)
class Case:
    """A graded rollout of a history, with everything needed to grade it."""

    stored: StoredRollout
    verdict: Verdict
    """The recorded one."""
    problem: Problem
    config: RunConfig
    known_good: KnownGood = field(default_factory=KnownGood)
    """CPU seconds of known-good answers in the history."""

    @property
    def answer(self) -> Answer:
        return answer_to(self.problem, self.stored.rollout.text)


def open_case(history: History, key: str) -> Case:
    """The rollout with this key, or whose key has this end.

    Raises:
        HistoryError: there is none or more than one, it has no verdict yet, or its problem is missing.
        ConfigError: the run's configuration cannot be used here.
    """
    stored = history.find_rollout(key)
    rollout = stored.rollout
    if stored.verdict is None:
        raise HistoryError(
            f"{rollout.key} is not graded yet",
            "its run grades it as it goes on: rtl-distill train",
        )
    record = history.problem_record(rollout.run, rollout.problem_id)
    if record is None:
        raise HistoryError(
            f"{history.path} has lost problem {rollout.problem_id!r}",
            "restore it from a snapshot",
        )
    known_good = KnownGood(*history.cpu_of_known_good())
    return Case(
        stored,
        stored.verdict,
        Problem.model_validate(record),
        config_of(history, rollout.run),
        known_good,
    )


def grade_again(
    case: Case, executor: RecordingExecutor, *, stage: Stage | None = None
) -> Verdict:
    """The verdict of the current tools on a case, with the run's limits and seeds. `stage`: the last one to
    grade; None: the run's."""
    section, rollout = case.config.grading, case.stored.rollout
    last = stage or Stage(section.last_stage(rollout.purpose, rollout.step))
    with closing(grader_of(case.config.grading, executor, case.known_good)) as grader:
        return grader.grade(case.problem, case.answer, last)


def is_same(was: Verdict, now: Verdict) -> bool:
    """Whether two verdicts agree, apart from times, tools, and the reason of a timeout (it names the limit)."""

    def essence(verdict: Verdict) -> tuple[object, ...]:
        reasons = () if verdict.outcome is Outcome.TIMEOUT else verdict.reasons
        return verdict.outcome, verdict.tests_passed, verdict.tests_total, reasons

    return essence(was) == essence(now)


def in_words(verdict: Verdict) -> list[str]:
    """Outcome and reasons."""
    head = f"{verdict.outcome.value.replace('_', ' ')}, {verdict.tests_passed} of {verdict.tests_total} tests"
    return [f"{head}, by {verdict.executor}, seed {verdict.seed}", *verdict.reasons]


def other_tools(was: Verdict, now: Verdict) -> list[str]:
    """Which tools differ: the first thing to check if verdicts do."""
    lines = []
    for name in sorted({*was.tools, *now.tools}):
        before, after = (verdict.tools.get(name, "absent") for verdict in (was, now))
        if before != after:
            lines.append(f"{name} was {before}, is {after}")
    return lines


def executor_of(case: Case) -> Executor:
    """Start an executor of the kind that graded a case."""
    return make_executor(case.verdict.executor, case.config.grading.image)
