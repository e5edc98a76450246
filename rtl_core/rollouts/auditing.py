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
from rtl_core.rollouts.resumable import ALL, Choice, PeriodicWriter, problems_as_recorded, texts_of
from rtl_core.run.session import Session
from rtl_grader.equivalence.pair import Comparison
from rtl_grader.equivalence.side_by_side import Effort
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
"""Key in `audits` of findings made during training; `rtl-distill audit` audits these answers again."""

_KNOWN = "SELECT rollout, key FROM audits WHERE run = $run"


@dataclass
class AuditDone:
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
        without = f", {self.without_golden} without a golden answer" if self.without_golden else ""
        return f"{self.passes} passes, {self.known} audited before{without}; {self.simulated} distinct answers audited now"


@dataclass(frozen=True)
class _Work:
    """One distinct answer to compare with the golden one, or all passes of a problem to compare with one another."""

    problem: Problem
    answers: tuple[tuple[dict[str, str], tuple[str, ...]], ...]
    """(files, rollouts with these files)."""
    key: str

    @property
    def n_rollouts(self) -> int:
        return sum(len(rollouts) for _, rollouts in self.answers)


def audit_run(
    path: Path, config: RunConfig, choice: Choice = ALL, effort: Effort = THOROUGH, *, jobs: int = 0
) -> AuditDone:
    """Audit the passes of the run `config.run.name` in the history at `path` and store the findings.

    Args:
        choice: which of the run's rollouts; only passes among them are audited.
        jobs: concurrent simulations; 0 means one per core.

    Raises:
        HistoryError: the history cannot be read or written.
        ToolMissingError: no simulator is installed.
    """
    history, run, done = History(path), config.run.name, AuditDone()
    chosen = choice.of(history, run, passed=True)
    done.passes = sum(map(len, chosen.values()))
    problems = problems_as_recorded(history, run, chosen)
    done.without_golden = sum(
        len(chosen[name]) for name, problem in problems.items() if problem.golden is None
    )
    if not chosen:
        return done
    with closing(
        GraderPool(Grader(executor_of(config.grading), limits=limits_of(config.grading)), jobs)
    ) as pool:
        asyncio.run(_Audit(history, run, pool, effort, problems, chosen, done).run_all())
    return done


@dataclass
class _Audit:
    history: History
    run: str
    pool: GraderPool
    effort: Effort
    problems: dict[str, Problem]
    chosen: dict[str, list[str]]
    """Problem id -> rollouts."""
    done: AuditDone
    once: DesignCache = field(default_factory=DesignCache)

    async def run_all(self) -> None:
        """Audit every answer that has not been audited."""
        tally = Tally("passes", sum(map(len, self.chosen.values())))
        writer = PeriodicWriter[AuditRecord](
            lambda records: asyncio.to_thread(self.history.record_audits, records)
        )
        pool, grader = self.pool, self.pool.grader

        async def audit(work: _Work) -> None:
            answers = [files for files, _ in work.answers]
            try:
                comparisons = await pool.call(
                    audit_passes, grader, work.problem, answers, self.effort, self.once
                )
            except InfrastructureError as error:
                self.done.failed[error.message] += work.n_rollouts
                return
            self.done.simulated += len(work.answers)
            records = [
                audit_record(self.run, rollout, work.problem.id, found, grader.executor, work.key)
                for (_, rollouts), found in zip(work.answers, comparisons, strict=True)
                for rollout in rollouts
            ]
            await writer.add(*records)

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
            await writer.flush()

    def _work(self, tally: Tally) -> Iterator[_Work]:
        """Yield the distinct answers that have not been audited, problem by problem."""
        known = {
            row["rollout"]: row["key"]
            for row in self.history.query(_KNOWN, {"run": self.run}).to_pylist()
        }
        for problem_id, rollouts in sorted(self.chosen.items()):
            problem = self.problems[problem_id]
            equal: dict[tuple[tuple[str, str], ...], list[str]] = defaultdict(list)
            for text, keys in texts_of(self.history, self.run, problem_id, set(rollouts)).items():
                equal[tuple(sorted(answer_to(problem, text).files.items()))] += keys
            key = self._key(problem, equal)
            wanted = {rollout for rollout in rollouts if known.get(rollout) != key}
            self.done.known += len(rollouts) - len(wanted)
            tally.advance(len(rollouts) - len(wanted))
            if wanted and problem.golden is None:
                answers = tuple(
                    (dict(pairs), tuple(k for k in keys if k in wanted))
                    for pairs, keys in equal.items()
                )
                yield _Work(problem, answers, key)
                continue
            for pairs, keys in equal.items():
                if left := tuple(rollout for rollout in keys if rollout in wanted):
                    yield _Work(problem, ((dict(pairs), left),), key)

    def _key(self, problem: Problem, answers: Iterable[tuple[tuple[str, str], ...]]) -> str:
        parts = [
            AUDITOR_VERSION,
            golden_digest(problem) if problem.golden is not None else sorted(answers),
            asdict(self.effort),
            sorted(self.pool.grader.executor.tools().items()),
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def audit_record(
    run: str, rollout: str, problem_id: str, found: Comparison, executor: Executor, key: str
) -> AuditRecord:
    """Return the row of a finding; `key` identifies the inputs that it depends on."""
    fields = vars(found) | {"trace": [dict(step) for step in found.trace]}
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


async def audit_group(session: Session, batch: Batch, problem_id: str) -> None:
    """Audit the passes of one graded group of a train step (`rtl_grader.validation.doubts`).

    Where a reward term reads netlists, every pass is audited, and its reward is computed again. A failure
    of the executor is no finding.
    """
    pays_size, graders = session.config.reward.pays_size, session.graders
    if batch.purpose != "train" or (session.config.learning.doubtful == "keep" and not pays_size):
        return
    passes = [
        stored for stored in batch.group(problem_id) if stored.passed and stored.audit is None
    ]
    if not passes:
        return
    problem = session.problems[problem_id]
    answers = [answer_to(problem, stored.rollout.text).files for stored in passes]
    share = math.inf if pays_size else session.config.learning.doubtful_share
    with batch.clock.measure("doubt"):
        try:
            comparisons = await graders.call(
                graders.doubts.look, graders.grader, problem, answers, share, pays_size
            )
        except InfrastructureError:
            return
    rewarded, records = [], []
    for stored, found in zip(passes, comparisons, strict=True):
        if found is None:
            continue
        key = stored.rollout.key
        batch.update(stored, audit=found.result)
        if pays_size and found.agrees and stored.verdict is not None:
            reward = reward_of(session, stored.rollout, stored.verdict, found.netlist)
            batch.update(stored, reward=reward)
            rewarded.append((key, stored.verdict, reward))
        records.append(
            audit_record(
                session.run, key, problem_id, found, graders.grader.executor, WHILE_TRAINING
            )
        )
    session.recorder.put("record_verdicts", rewarded)
    session.recorder.put("record_audits", records)
