"""A run's passes held against the golden answers: which answers were paid though they behave differently?

Every distinct answer is simulated once beside the golden answer of its problem (`rtl_core.validation.differential`), for far longer
than a harness looks, and what was found is kept in the table `audits`. A repetition does only what is missing: passes that are new,
and those that were audited with another golden answer, effort or other tools.

Not covered: problems without a golden answer, and whatever `differential` cannot tell apart.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path

from rtl_core.config import RunConfig
from rtl_core.errors import InfrastructureError
from rtl_core.grading.executors import Executor, make_executor
from rtl_core.grading.limits import Limits
from rtl_core.history.records import AuditRecord
from rtl_core.history.store import History
from rtl_core.observe.progress import Progress
from rtl_core.prompting.answer_to import answer_to
from rtl_core.run.folder import Which, texts_of
from rtl_core.run.session import limits_of
from rtl_core.types.problem import Problem
from rtl_core.validation.differential import Comparison, Effort, compare
from rtl_core.validation.level import golden_digest

AUDITOR_VERSION = 2
"""Raised whenever an audit may come to another result than before."""
WRITE_EVERY_S = 5.0

_PASSES = """
SELECT r.rollout, r.problem_id FROM rollouts r JOIN verdicts v USING (rollout)
WHERE r.run = $run AND v.outcome = 'passed'
  AND ($purpose = 'all' OR r.purpose = $purpose)
ORDER BY hash(r.rollout), r.rollout LIMIT $most
"""
_KNOWN = "SELECT rollout, key FROM audits WHERE run = $run"


@dataclass(frozen=True)
class AuditPlan:
    """Which passes are audited, and how thoroughly."""

    purpose: Which = "all"
    most: int = 2**31 - 1
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


@dataclass(frozen=True)
class _Answer:
    """One distinct answer and the passes that it was paid."""

    problem: Problem
    files: dict[str, str]
    rollouts: tuple[str, ...]
    key: str


def audit_run(path: Path, config: RunConfig, plan: AuditPlan, tell: Progress, *, jobs: int = 0) -> AuditDone:
    """Audit the passes of the run `config.run.name` in the history at `path` and store what was found.

    Args:
        jobs: simulations at one time; 0 means one per core.

    Raises:
        HistoryError: the history cannot be read or written.
        ToolMissingError: no simulator is installed.
    """
    history, run, done = History(path), config.run.name, AuditDone()
    chosen: dict[str, list[str]] = defaultdict(list)
    for row in history.query(_PASSES, {"run": run, "purpose": plan.purpose, "most": plan.most}).to_pylist():
        chosen[row["problem_id"]].append(row["rollout"])
    done.passes = sum(map(len, chosen.values()))
    problems = {
        p.problem_id: Problem.model_validate(p.record) for p in history.problems_of(run) if p.problem_id in chosen
    }
    for problem_id in [name for name in chosen if name not in problems or problems[name].golden is None]:
        done.without_golden += len(chosen.pop(problem_id))
    if not chosen:
        return done
    jobs = jobs or os.cpu_count() or 1
    with ExitStack() as stack:
        pool = ThreadPoolExecutor(jobs, thread_name_prefix="audit")
        stack.callback(pool.shutdown, cancel_futures=True)
        executor = make_executor(config.grading.executor)
        stack.callback(executor.close)  # first, so that no simulation is waited for when this is cut short
        work = _Auditing(
            history, run, executor, limits_of(config), plan, jobs, {p: problems[p] for p in chosen}, chosen, done
        )
        stack.callback(work.write)  # and before that what is known is kept
        work.go(pool, tell)
    return done


@dataclass
class _Auditing:
    history: History
    run: str
    executor: Executor
    limits: Limits
    plan: AuditPlan
    jobs: int
    """Threads of the pool."""
    problems: dict[str, Problem]
    chosen: dict[str, list[str]]
    """Problem id -> rollouts."""
    done: AuditDone
    _found: list[AuditRecord] = field(default_factory=list)
    _written_at: float = field(default_factory=time.monotonic)

    def go(self, pool: ThreadPoolExecutor, tell: Progress) -> None:
        """Simulate every answer that is not known; at most two for each thread are in memory."""
        total = sum(map(len, self.chosen.values()))
        answers, finished = self._answers(), 0
        waiting: dict[Future[Comparison], _Answer] = {}
        while True:
            for answer in islice(answers, 2 * self.jobs - len(waiting)):
                waiting[pool.submit(self._compare, answer)] = answer
            if not waiting:
                return
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                answer = waiting.pop(future)
                self._keep(answer, future)
                finished += len(answer.rollouts)
                tell.advance("passes", self.done.known + finished, total)
            if time.monotonic() - self._written_at > WRITE_EVERY_S:
                self.write()

    def write(self) -> None:
        """Commit what was found since the last write."""
        self._written_at = time.monotonic()
        found, self._found = self._found, []
        if found:
            self.history.record_audits(found)

    def _answers(self) -> Iterator[_Answer]:
        """The distinct answers of one problem after the other, without those that are known."""
        known = {row["rollout"]: row["key"] for row in self.history.query(_KNOWN, {"run": self.run}).to_pylist()}
        for problem_id, rollouts in sorted(self.chosen.items()):
            problem, key = self.problems[problem_id], self._key(self.problems[problem_id])
            wanted = {rollout for rollout in rollouts if known.get(rollout) != key}
            self.done.known += len(rollouts) - len(wanted)
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

    def _keep(self, answer: _Answer, future: Future[Comparison]) -> None:
        try:
            found = future.result()
        except InfrastructureError as error:
            self.done.failed[error.message] += len(answer.rollouts)
            return
        self.done.simulated += 1
        tools = self.executor.tools()
        self._found += [
            AuditRecord(
                rollout=rollout, run=self.run, problem_id=answer.problem.id, result=found.result, detail=found.detail,
                key=answer.key, executor=self.executor.name, tools=tools,
            )
            for rollout in answer.rollouts
        ]  # fmt: skip
