"""A run's passes held against the golden answers: which answers were paid though they behave differently?

Every distinct answer is simulated once beside the golden answer of its problem (`rtl_core.validation.differential`), for far longer
than a harness looks, and what was found is kept in the table `audits`. A repetition does only what is missing: passes that are new,
and those that were audited with another golden answer, effort or other tools.

Not covered: problems without a golden answer, and whatever `differential` cannot tell apart.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rtl_core.config import RunConfig
from rtl_core.errors import InfrastructureError
from rtl_core.grading.executors import Executor
from rtl_core.grading.limits import Limits
from rtl_core.history.records import AuditRecord
from rtl_core.history.store import History
from rtl_core.prompting.answer_to import answer_to
from rtl_core.rollouts.resumable import (
    ALL,
    Choice,
    NowAndThen,
    Tally,
    daemon_threads,
    problems_as_recorded,
    texts_of,
    work_off,
)
from rtl_core.run.graders import executor_of, limits_of
from rtl_core.types.problem import Problem
from rtl_core.validation.differential import Comparison, Effort, compare
from rtl_core.validation.level import golden_digest

AUDITOR_VERSION = 2
"""Raised whenever an audit may come to another result than before."""

_KNOWN = "SELECT rollout, key FROM audits WHERE run = $run"


@dataclass(frozen=True)
class AuditPlan:
    """Which passes are audited, and how thoroughly."""

    choice: Choice = ALL
    cycles: int = 24_000
    """Clock cycles, or random input patterns, for each set of parameters."""
    parameter_sets: int = 6
    """Other values of the parameters than the defaults, where a problem has parameters."""

    @property
    def effort(self) -> Effort:
        return Effort.of_cycles(self.cycles, self.parameter_sets)


@dataclass
class AuditDone:
    """What a call did, beside what it stored."""

    passes: int = 0
    """Passes that were chosen."""
    known: int = 0
    """Of those, audited before in the same way."""
    without_golden: int = 0
    simulated: int = 0
    """Distinct answers that were simulated now."""
    failed: Counter[str] = field(default_factory=Counter)
    """Why the executor failed -> for how many passes; a repetition tries them again."""

    def in_words(self) -> str:
        """One line."""
        left = f", {self.without_golden} without a golden answer" if self.without_golden else ""
        return (
            f"{self.passes} passes, {self.known} known from before{left}; {self.simulated} distinct answers simulated"
        )


@dataclass(frozen=True)
class _Answer:
    """One distinct answer and the passes that it was paid."""

    problem: Problem
    files: dict[str, str]
    rollouts: tuple[str, ...]
    key: str


def audit_run(path: Path, config: RunConfig, plan: AuditPlan, *, jobs: int = 0) -> AuditDone:
    """Audit the passes of the run `config.run.name` in the history at `path` and store what was found.

    Args:
        jobs: simulations at one time; 0 means one per core.

    Raises:
        HistoryError: the history cannot be read or written.
        ToolMissingError: no simulator is installed.
    """
    history, run, done = History(path), config.run.name, AuditDone()
    chosen = plan.choice.of(history, run, passed=True)
    done.passes = sum(map(len, chosen.values()))
    problems = problems_as_recorded(history, run, chosen)
    for problem_id in [name for name in chosen if name not in problems or problems[name].golden is None]:
        done.without_golden += len(chosen.pop(problem_id))
    if not chosen:
        return done
    executor = executor_of(config)
    work = _Auditing(history, run, executor, limits_of(config), plan, {p: problems[p] for p in chosen}, chosen, done)
    asyncio.run(work.go(jobs or os.cpu_count() or 1))
    return done


@dataclass
class _Auditing:
    history: History
    run: str
    executor: Executor
    limits: Limits
    plan: AuditPlan
    problems: dict[str, Problem]
    chosen: dict[str, list[str]]
    """Problem id -> rollouts."""
    done: AuditDone

    async def go(self, jobs: int) -> None:
        """Simulate every answer that is not known; the executor is closed then."""
        tally = Tally("passes", sum(map(len, self.chosen.values())))
        found = NowAndThen[AuditRecord](lambda records: asyncio.to_thread(self.history.record_audits, records))
        with daemon_threads(self.executor) as call:

            async def simulate(answer: _Answer) -> None:
                try:
                    comparison = await call(self._compare, answer)
                except InfrastructureError as error:
                    self.done.failed[error.message] += len(answer.rollouts)
                else:
                    self.done.simulated += 1
                    await found.add(*self._records(answer, comparison))

            try:
                await work_off(
                    self._answers(tally), simulate, tally, at_once=jobs, name=lambda answer: answer.problem.id,
                    size=lambda answer: len(answer.rollouts),
                )  # fmt: skip
            finally:
                await found.flush()

    def _answers(self, tally: Tally) -> Iterator[_Answer]:
        """The distinct answers of one problem after the other, without those that are known."""
        known = {row["rollout"]: row["key"] for row in self.history.query(_KNOWN, {"run": self.run}).to_pylist()}
        for problem_id, rollouts in sorted(self.chosen.items()):
            problem, key = self.problems[problem_id], self._key(self.problems[problem_id])
            wanted = {rollout for rollout in rollouts if known.get(rollout) != key}
            self.done.known += len(rollouts) - len(wanted)
            tally.advance(len(rollouts) - len(wanted))
            if not wanted:
                continue
            equal: dict[tuple[tuple[str, str], ...], list[str]] = defaultdict(list)
            for text, keys in texts_of(self.history, self.run, problem_id, wanted).items():
                equal[tuple(sorted(answer_to(problem, text).files.items()))] += keys
            for pairs, keys in equal.items():
                yield _Answer(problem, dict(pairs), tuple(keys), key)

    def _key(self, problem: Problem) -> str:
        parts = [
            AUDITOR_VERSION,
            golden_digest(problem),
            asdict(self.plan.effort),
            sorted(self.executor.tools().items()),
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def _compare(self, answer: _Answer) -> Comparison:
        if not answer.files:
            return Comparison("unknown", "the answer has no file that could be simulated")
        assert answer.problem.golden is not None
        return compare(
            self.executor, answer.problem, answer.problem.golden, answer.files, self.limits, effort=self.plan.effort
        )

    def _records(self, answer: _Answer, found: Comparison) -> list[AuditRecord]:
        return [
            AuditRecord(
                rollout=rollout, run=self.run, problem_id=answer.problem.id, result=found.result, detail=found.detail,
                key=answer.key, executor=self.executor.name, tools=self.executor.tools(),
            )
            for rollout in answer.rollouts
        ]  # fmt: skip
