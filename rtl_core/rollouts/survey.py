"""Validation of a session's problems: results from the history, new ones, and the problems that are unfit.

Records are written in few transactions; those lost in a crash are validated again, under the same keys.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable
from functools import cached_property

from attrs import define, field

from rtl_core.errors import InfrastructureError
from rtl_core.history.store import History
from rtl_core.run.session import Session
from rtl_grader.grading.executors.base import Job, Step
from rtl_grader.progress import log_line
from rtl_grader.types.problem import Problem
from rtl_grader.validation.found_golden import MIN_AGREEING, find_golden, with_golden
from rtl_grader.validation.level import Level, full_level, golden_digest, quick_level, tools_key
from rtl_grader.validation.record import VALIDATION_STATUSES, ValidationRecord
from rtl_grader.validation.validate import unsupported, validate_problem
from rtl_grader.words import counted

ATTEMPTS = 3
"""Number of executor failures on one problem after which it is left out of this run."""
IDLE = Job(files={}, harness={}, steps=(Step("idle", ("true",)),))
"""A job that every working executor runs."""
_SAMPLES = """
SELECT p.fingerprint, list(r.text ORDER BY r.rollout) AS texts
FROM rollouts r
JOIN verdicts v ON v.rollout = r.rollout
JOIN run_problems p ON p.run = r.run AND p.problem_id = r.problem_id
WHERE v.outcome = 'passed' AND (r.purpose = 'evaluation' AND r.policy = 'teacher'
                                OR r.purpose = 'warm_start' AND r.policy IN ('teacher', 'endpoint'))
GROUP BY p.fingerprint
"""


def teacher_samples(history: History) -> dict[str, list[str]]:
    """Mapping of problem fingerprint to the passing samples of teachers, also of those behind endpoints, over
    all runs of a history."""
    return {row["fingerprint"]: row["texts"] for row in history.rows(_SAMPLES)}


@define(eq=False)
class Survey:
    """A validation in progress. `records` maps problem ids to results, new or from the history."""

    session: Session
    level: Level
    records: dict[str, ValidationRecord] = field(factory=dict)
    n_known: int = 0
    """Number of records from the history."""
    samples: dict[str, list[str]] = field(factory=dict)
    """Mapping of problem fingerprint to the teacher's stored samples that passed."""
    _failures: Counter[str] = field(factory=Counter)

    @property
    def waiting(self) -> list[str]:
        """Ids of the problems without a record, in the session's order."""
        return [name for name in self.session.problems if name not in self.records]

    async def validate(self, problem_id: str) -> None:
        """Validate one problem in the session's pool.

        Raises:
            InfrastructureError: the executor failed on it for the first or second time, or runs no job at all; retry.
        """
        problem = self.session.problems[problem_id]
        try:
            record = await self.session.graders.call(self._validate, problem)
        except InfrastructureError as error:
            self._failures[problem_id] += 1
            if self._failures[problem_id] < ATTEMPTS:
                raise
            self._failures.clear()
            executor = self.session.graders.grader.executor
            # An executor that runs nothing at all says nothing about the problem: its error is raised, and
            # the validation is retried.
            await self.session.graders.call(executor.run, IDLE)
            # One problem on which the executor fails must not end the run. Nothing is stored: a later run tries again.
            reason = f"the executor failed {ATTEMPTS} times: {error.message}"
            self.records[problem_id] = ValidationRecord(
                fingerprint=problem.fingerprint,
                tools_key=tools_key(executor.name, executor.tools(), self.level),
                problem_id=problem.id,
                status="unsupported",
                evidence={"reason": reason, "source": problem.source, "family": problem.family},
            )
        else:
            self.records[problem_id] = record
            session = self.session
            session.recorder.put("record_validations", [(session.run, record)])

    def _validate(self, problem: Problem) -> ValidationRecord:
        """Validate with the golden answer, or with one found among the teacher's stored samples."""
        grader, level = self.session.graders.grader, self.level
        samples = self.samples.get(problem.fingerprint, [])
        if problem.golden is not None or len(samples) < MIN_AGREEING:
            return validate_problem(problem, grader, level=level)
        files, why = find_golden(problem, samples, grader, level.seeds)
        if files is not None:
            problem = with_golden(problem, files, grader)
        record = validate_problem(problem, grader, level=level, found_golden=files is not None)
        search = {"samples": len(samples), "result": why, "files": files}
        return record.model_copy(
            update={"evidence": {**record.evidence, "found_golden": search}}
        )

    def serves(self, record: ValidationRecord, problem: Problem) -> bool:
        """Whether a stored record is for the same golden answer (not part of the fingerprint) or, without
        one, the same number of samples."""
        samples = len(self.samples.get(problem.fingerprint, []))
        if problem.golden is None and samples >= MIN_AGREEING:
            return (record.evidence.get("found_golden") or {}).get("samples") == samples
        golden = record.evidence.get("golden") or {}
        return golden.get("source") != "found" and golden.get("digest") == golden_digest(
            problem
        )

    def mark_unfit(self) -> None:
        """Exclude every problem from the session that may not train or evaluate, with the reason."""
        for problem_id, record in self.records.items():
            self.mark(problem_id, record)

    def mark(self, problem_id: str, record: ValidationRecord) -> None:
        """Exclude a problem from the session if it may not train or evaluate."""
        session, config = self.session, self.session.config.problems
        if record.status == "fit":
            return
        if record.status == "fit_without_golden" and not config.require_golden:
            return
        is_weak = record.status == "weak" and config.weak_ceiling
        if is_weak and problem_id not in self._heldout:
            session.graders.ceilings[problem_id] = config.weak_ceiling
            return
        reason = f"{record.status.replace('_', ' ')}: {record.evidence.get('reason', '')}"
        session.unfit.setdefault(problem_id, reason)

    @cached_property
    def _heldout(self) -> set[str]:
        return {problem.id for problem in self.session.loaded.heldout}

    def in_words(self) -> str:
        """Number of problems by status, in words."""
        counts = self.summary()
        del counts["known"]
        parts = [f"{count} {status.replace('_', ' ')}" for status, count in counts.items()]
        return ", ".join(parts) or "nothing"

    def summary(self) -> dict[str, int]:
        """Mapping of status to number of problems; `known`: how many of them were in the history."""
        counts: Counter[str] = Counter(record.status for record in self.records.values())
        return {
            **{status: counts[status] for status in VALIDATION_STATUSES if counts[status]},
            "known": self.n_known,
        }


@define(eq=False)
class ValidationAhead:
    """Validates problems in the background before they are needed. Unfit ones are excluded from the session
    immediately.

    Attributes:
        validate: the task that validates one problem of the survey, with retries.
        concurrency: maximum number of problems validated at a time.
    """

    survey: Survey
    validate: Callable[[Survey, str], Awaitable[None]]
    concurrency: int
    _tasks: dict[str, asyncio.Task[None]] = field(factory=dict)
    _slots: asyncio.Semaphore = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._slots = asyncio.Semaphore(self.concurrency)
        self.survey.mark_unfit()

    def begin(self, problem_ids: Iterable[str]) -> None:
        """Start building the prompts of these and validating them in the background, after earlier ones. Problems
        that have a record are not validated again."""
        for problem_id in problem_ids:
            if problem_id not in self._tasks and problem_id not in self.survey.session.unfit:
                self._tasks[problem_id] = asyncio.create_task(self._one(problem_id))

    async def finished(self, problem_ids: Iterable[str]) -> None:
        """Wait until these have a prompt and are validated; unfit ones are then in `session.unfit`.

        Raises what the validation of one of them raised.
        """
        names = list(problem_ids)
        self.begin(names)
        await asyncio.gather(*(self._tasks[name] for name in names if name in self._tasks))

    async def close(self) -> None:
        """Cancel what is still running."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _one(self, problem_id: str) -> None:
        session, survey = self.survey.session, self.survey
        if session.prompt_fits(problem_id) and problem_id not in survey.records:
            async with self._slots:
                await self.validate(survey, problem_id)
            survey.mark(problem_id, survey.records[problem_id])
        if problem_id in session.unfit:
            log_line(f"left out: {problem_id} is {session.unfit[problem_id]}")
            excluded = [(session.problems[problem_id], "excluded", None)]
            await session.recorder.call(session.history.place_problems, session.run, excluded)


def level_of_run(session: Session) -> Level:
    """Level at which each problem is validated before a run uses it."""
    return quick_level(session.config.problems.validation_mutants, session.config.grading.seed)


def begin(session: Session, level: Level) -> Survey:
    """Start the validation of a session's problems with the records in the history.

    A record of the full level also counts for the quick one.
    """
    without_golden = any(problem.golden is None for problem in session.problems.values())
    survey = Survey(
        session, level, samples=teacher_samples(session.history) if without_golden else {}
    )
    executor = session.graders.grader.executor
    tools = executor.tools()
    keys = [tools_key(executor.name, tools, level)]
    if level.name == "quick":
        keys.append(tools_key(executor.name, tools, full_level()))
    for key in keys:
        stored = session.history.validations(key)
        for problem_id, problem in session.problems.items():
            record = stored.get(problem.fingerprint)
            if record is None or problem_id in survey.records:
                continue
            if survey.serves(record, problem):
                survey.records[problem_id] = record.model_copy(
                    update={"problem_id": problem_id}
                )
    survey.n_known = len(survey.records)
    return survey


async def leave_out_unsupported(session: Session) -> None:
    """Exclude problems that cannot be graded here from the session, with a log line. Nothing is simulated,
    and problems with a weak harness stay: a published benchmark counts them too."""
    ids_by_reason: dict[str, list[str]] = defaultdict(list)
    for problem in session.usable(session.problems.values()):
        if reason := await session.graders.call(unsupported, problem, session.graders.grader):
            session.unfit[problem.id] = reason
            ids_by_reason[reason].append(problem.id)
    for reason, ids in ids_by_reason.items():
        number = counted(len(ids), "problem")
        log_line(f"left out: {number} (such as {ids[0]}): {reason}")
