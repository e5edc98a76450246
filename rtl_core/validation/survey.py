"""The validation of a session's problems: what the history knows already, what is done now, what is unfit.

Records go to the history in few writes; what a crash takes is validated again, under the same keys.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rtl_core.history.records import ValidationRecord
from rtl_core.problems.problem import Problem
from rtl_core.validation.level import Level, full_level, golden_digest, tools_key
from rtl_core.validation.validate import validate_problem

if TYPE_CHECKING:
    from rtl_core.pipeline.session import Session

WRITE_EVERY_S = 5.0
STATUSES = ("fit", "fit_without_golden", "weak", "flaky", "broken", "unsupported")


@dataclass
class Survey:
    """A validation under way. `records` maps problem ids to what was found, now or before."""

    session: Session
    level: Level
    records: dict[str, ValidationRecord] = field(default_factory=dict)
    known: int = 0
    """How many records were taken from the history."""
    _pending: list[ValidationRecord] = field(default_factory=list)
    _written_at: float = field(default_factory=time.monotonic)

    @property
    def waiting(self) -> list[str]:
        """Ids of the problems that nothing is known of yet, the cheapest harness first where times are alike."""
        return [problem_id for problem_id in self.session.problems if problem_id not in self.records]

    def status(self, problem_id: str) -> str:
        return self.records[problem_id].status

    async def validate(self, problem_id: str) -> str:
        """Validate one problem in the session's pool; returns its status.

        Raises:
            InfrastructureError: the executor failed; worth trying again.
        """
        loop = asyncio.get_running_loop()
        problem, grader = self.session.problems[problem_id], self.session.grader
        record = await loop.run_in_executor(
            self.session.pool, lambda: validate_problem(problem, grader, level=self.level)
        )
        self.records[problem_id] = record
        self._pending.append(record)
        if time.monotonic() - self._written_at > WRITE_EVERY_S:
            await self.write()
        return record.status

    async def write(self) -> None:
        """Commit what was found since the last write."""
        self._written_at = time.monotonic()
        pending, self._pending = self._pending, []
        if pending:
            session = self.session
            await session.recorder.call(session.history.record_validation, session.run, pending)

    def mark_unfit(self) -> None:
        """Take every problem out of the session that may not train or evaluate, with the reason."""
        without_golden = not self.session.config.problems.require_golden
        for problem_id, record in self.records.items():
            if record.status == "fit" or (record.status == "fit_without_golden" and without_golden):
                continue
            reason = f"{record.status.replace('_', ' ')}: {record.evidence.get('reason', '')}"
            self.session.unfit.setdefault(problem_id, reason)

    def summary(self) -> dict[str, int]:
        """Status -> problems, and `known`: how many of them the history already held."""
        counts: Counter[str] = Counter(record.status for record in self.records.values())
        return {**{status: counts[status] for status in STATUSES if counts[status]}, "known": self.known}


_open: dict[str, Survey] = {}


def begin(session: Session, level: Level) -> Survey:
    """Open the validation of a session's problems, with what the history holds of it already.

    A record of the full level serves the quick one as well. Reach it again with `survey_of(run)`.
    """
    survey = Survey(session, level)
    executor = session.grader.executor
    tools = executor.tools()
    keys = [tools_key(executor.name, tools, level)]
    if level.name == "quick":
        keys.append(tools_key(executor.name, tools, full_level()))
    for key in keys:
        stored = session.history.validations(key)
        for problem_id, problem in session.problems.items():
            record = stored.get(problem.fingerprint)
            if record is not None and problem_id not in survey.records and _serves(record, problem):
                survey.records[problem_id] = record.model_copy(update={"problem_id": problem_id})
    survey.known = len(survey.records)
    _open[session.run] = survey
    return survey


def survey_of(run: str) -> Survey:
    """The validation under way of an open session; tasks pass names, never objects."""
    return _open[run]


def end(survey: Survey) -> None:
    """Forget a validation whose records are written."""
    _open.pop(survey.session.run, None)


def _serves(record: ValidationRecord, problem: Problem) -> bool:
    """Whether a stored record is about the same golden answer, which the fingerprint leaves out."""
    return (record.evidence.get("golden") or {}).get("digest") == golden_digest(problem)
