"""Audit of passing answers: which of them passed although they behave differently?

Each distinct answer is compared once with the golden answer of its problem: simulated beside it for far
longer than a harness runs, then proved equivalent where possible (`rtl_grader.equivalence.differential`).
Passes of a problem without a golden answer are compared with one another
(`rtl_grader.equivalence.consensus`). Findings go to the table `audits`. A repeat audits only new passes and
those that were audited with another golden answer, other texts, effort or tools.

`audit_group` does the same for a group of a train step: with `learning.doubtful` as `mask` or `zero`, an
answer that differs is masked or earns nothing. Passes for which there is no time keep their reward.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rtl_core.config import RunConfig
from rtl_core.errors import InfrastructureError
from rtl_core.history.records import AuditRecord
from rtl_core.history.store import History
from rtl_core.rollouts.batch import Batch, reward_of
from rtl_core.rollouts.resumable import (
    ALL,
    Choice,
    problems_as_recorded,
    texts_of,
)
from rtl_core.run.recorder import Recorder
from rtl_core.run.state import Graders
from rtl_grader.equivalence.effort import Effort
from rtl_grader.equivalence.pair import Comparison
from rtl_grader.extraction.answer_to import answer_to
from rtl_grader.grading.executors import Executor
from rtl_grader.grading.grader import Grader
from rtl_grader.grading.pool import GraderPool
from rtl_grader.records.audit_file import THOROUGH
from rtl_grader.settings import executor_of, limits_of
from rtl_grader.types.problem import Problem
from rtl_grader.validation.doubts import DesignCache, audit_passes
from rtl_grader.validation.level import golden_digest
from rtl_grader.work import Tally, process_all

AUDITOR_VERSION = 5
"""Increased with every change that may change the result of an audit."""

WHILE_TRAINING = "while training"
"""Key in `audits` of findings made during training; `rtl-distill grade audit` audits these answers again."""

_KNOWN = "SELECT rollout, key FROM audits WHERE run = $run"


@dataclass
class AuditSummary:
    """Counts of one audit."""

    passes: int = 0
    """Chosen passes."""
    known: int = 0
    """Of those, audited before in the same way."""
    without_golden: int = 0
    """Of those, passes of problems without a golden answer."""
    simulated: int = 0
    """Distinct answers that were simulated now."""
    failed: Counter[str] = field(default_factory=Counter)
    """Mapping of why the executor failed to the number of passes; a repeat tries them again."""

    def in_words(self) -> str:
        parts = [f"{self.passes} passes", f"{self.known} audited before"]
        if self.without_golden:
            parts.append(f"{self.without_golden} without a golden answer")
        return f"{', '.join(parts)}; {self.simulated} distinct answers audited now"


_Files = tuple[tuple[str, str], ...]
"""The (path, text) pairs of an answer's files, sorted."""


@dataclass(frozen=True)
class _Work:
    """One distinct answer to compare with the golden one, or all passes of a problem to compare with one another."""

    problem: Problem
    answers: dict[_Files, list[str]]
    """Mapping of files to the rollouts with these files."""
    key: str

    @property
    def n_rollouts(self) -> int:
        return sum(map(len, self.answers.values()))


def audit_run(
    path: Path,
    config: RunConfig,
    choice: Choice = ALL,
    effort: Effort = THOROUGH,
    *,
    jobs: int = 0,
) -> AuditSummary:
    """Audit the passes of the run `config.run.name` in the history at `path` and store the findings.

    Args:
        choice: which of the run's rollouts; only passes among them are audited.
        jobs: concurrent simulations; 0 means one per core.

    Raises:
        HistoryError: the history cannot be read or written.
        ToolMissingError: no simulator is installed.
    """
    history, run, section = History(path), config.run.name, config.grading
    passes = choice.of(history, run, passed=True)
    problems = problems_as_recorded(history, run, passes)
    without = [name for name, problem in problems.items() if problem.golden is None]
    summary = AuditSummary(
        passes=sum(map(len, passes.values())),
        without_golden=sum(len(passes[name]) for name in without),
    )
    if not passes:
        return summary
    grader = Grader(executor_of(section), limits=limits_of(section))
    with closing(GraderPool(grader, jobs)) as pool:
        asyncio.run(_Audit(history, run, pool, effort, problems, passes, summary).run_all())
    return summary


@dataclass
class _Audit:
    history: History
    run: str
    pool: GraderPool
    effort: Effort
    problems: dict[str, Problem]
    passes: dict[str, list[str]]
    """Problem id -> rollouts that passed."""
    summary: AuditSummary
    once: DesignCache = field(default_factory=DesignCache)

    async def run_all(self) -> None:
        """Audit every answer that has not been audited."""
        tally = Tally("passes", sum(map(len, self.passes.values())))
        recorder = Recorder(self.history)
        pool, grader = self.pool, self.pool.grader

        async def audit(work: _Work) -> None:
            answers = list(map(dict, work.answers))
            try:
                comparisons = await pool.call(
                    audit_passes, grader, work.problem, answers, self.effort, self.once
                )
            except InfrastructureError as error:
                self.summary.failed[error.message] += work.n_rollouts
                return
            self.summary.simulated += len(work.answers)
            problem_id, executor = work.problem.id, grader.executor
            records = [
                audit_record(self.run, rollout, problem_id, result, executor, work.key)
                for rollouts, result in zip(work.answers.values(), comparisons, strict=True)
                for rollout in rollouts
            ]
            recorder.put("record_audits", records)

        try:
            await process_all(
                self._work(tally),
                audit,
                tally,
                concurrency=pool.threads,
                name=lambda work: work.problem.id,
                size=lambda work: work.n_rollouts,
            )
        finally:
            await recorder.settle()

    def _work(self, tally: Tally) -> Iterator[_Work]:
        """Yield the distinct answers that have not been audited, problem by problem."""
        rows = self.history.rows(_KNOWN, run=self.run)
        keys = {row["rollout"]: row["key"] for row in rows}
        for problem_id, rollouts in sorted(self.passes.items()):
            problem = self.problems[problem_id]
            equal: dict[_Files, list[str]] = defaultdict(list)
            texts = texts_of(self.history, self.run, problem_id, rollouts)
            for rollout, text in texts.items():
                files = answer_to(problem, text).files
                equal[tuple(sorted(files.items()))].append(rollout)
            key = self._key(problem, equal)
            due = {rollout for rollout in rollouts if keys.get(rollout) != key}
            n_before = len(rollouts) - len(due)
            self.summary.known += n_before
            tally.advance(n_before)
            answers = {
                files: [rollout for rollout in same if rollout in due]
                for files, same in equal.items()
            }
            if due and problem.golden is None:
                yield _Work(problem, answers, key)
                continue
            for distinct, same in answers.items():
                if same:
                    yield _Work(problem, {distinct: same}, key)

    def _key(self, problem: Problem, answers: Iterable[_Files]) -> str:
        parts = [
            AUDITOR_VERSION,
            golden_digest(problem) if problem.golden is not None else sorted(answers),
            asdict(self.effort),
            sorted(self.pool.grader.executor.tools().items()),
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def audit_record(
    run: str, rollout: str, problem_id: str, result: Comparison, executor: Executor, key: str
) -> AuditRecord:
    """Return the row of a comparison; `key` identifies the inputs that it depends on."""
    fields = vars(result) | {"trace": [dict(step) for step in result.trace]}
    netlist = fields.pop("netlist")
    return AuditRecord(
        run=run,
        rollout=rollout,
        problem_id=problem_id,
        key=key,
        executor=executor.name,
        tools=executor.tools(),
        **fields,
        **(vars(netlist) if netlist else {}),
    )


async def audit_group(
    config: RunConfig, graders: Graders, recorder: Recorder, batch: Batch, problem: Problem
) -> None:
    """Audit the passes of one graded group of a train step (`rtl_grader.validation.doubts`).

    Where a reward term reads netlists, every pass is audited, and its reward is computed again. A failure
    of the executor is no finding.
    """
    pays_size, learning = config.reward.pays_size, config.learning
    if batch.purpose != "train" or (learning.doubtful == "keep" and not pays_size):
        return
    group = batch.group(problem.id)
    passes = [stored for stored in group if stored.passed and stored.audit is None]
    if not passes:
        return
    answers = [answer_to(problem, stored.rollout.text).files for stored in passes]
    share = math.inf if pays_size else learning.doubtful_share
    with batch.clock.measure("doubt"):
        try:
            comparisons = await graders.call(
                graders.doubts.look, graders.grader, problem, answers, share, pays_size
            )
        except InfrastructureError:
            return
    run, executor = config.run.name, graders.grader.executor
    rewards, records = [], []
    for stored, comparison in zip(passes, comparisons, strict=True):
        if comparison is None:
            continue
        rollout, verdict = stored.rollout, stored.verdict
        batch.update(stored, audit=comparison.result)
        if pays_size and comparison.agrees and verdict is not None:
            reward = reward_of(config, graders, problem, rollout, verdict, comparison.netlist)
            batch.update(stored, reward=reward)
            rewards.append((rollout.key, verdict, reward))
        record = audit_record(
            run, rollout.key, problem.id, comparison, executor, WHILE_TRAINING
        )
        records.append(record)
    recorder.put("record_verdicts", rewards)
    recorder.put("record_audits", records)
