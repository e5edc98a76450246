"""A run's passes looked at again: which answers were paid though they behave differently?

Every distinct answer is held once against the golden answer of its problem: simulated beside it for far longer than a harness looks,
then proved equal where that can be done (`rtl_core.equivalence.differential`). Passes of a problem without a golden answer are held
against one another (`rtl_core.equivalence.consensus`). What was found is kept in the table `audits`. A repetition does only what is
missing: passes that are new, and those that were audited with another golden answer, other texts, effort or tools.

The passing answers of a file are looked at in the same way (`audit_file`, of `rtl-distill grade --audit`).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rtl_core.config import RunConfig
from rtl_core.equivalence.pair import Comparison
from rtl_core.equivalence.side_by_side import Effort
from rtl_core.errors import InfrastructureError, ProblemError
from rtl_core.grading.answer_file import AnswerLine, read_answers
from rtl_core.grading.executors import Executor, make_executor
from rtl_core.grading.grader import Grader
from rtl_core.history.records import AuditRecord
from rtl_core.history.store import History
from rtl_core.problems.cvdp import read_cvdp
from rtl_core.prompting.answer_to import answer_to
from rtl_core.rollouts.grade_file import FileGrading
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
from rtl_core.validation.doubts import DesignCache, audit_passes
from rtl_core.validation.level import golden_digest

AUDITOR_VERSION = 4
"""Raised whenever an audit may come to another result than before."""

THOROUGH = Effort.of_cycles(24_000, 6, 10.0)
"""The usual effort: clock cycles or random patterns for each set of parameters, sets of parameters, CPU seconds of a proof."""

_KNOWN = "SELECT rollout, key FROM audits WHERE run = $run"


@dataclass
class AuditDone:
    """What a call did, beside what it stored."""

    passes: int = 0
    """Passes that were chosen."""
    known: int = 0
    """Of those, audited before in the same way."""
    without_golden: int = 0
    """Of those, passes of problems without a golden answer."""
    simulated: int = 0
    """Distinct answers that were held against others now."""
    failed: Counter[str] = field(default_factory=Counter)
    """Why the executor failed -> for how many passes; a repetition tries them again."""

    def in_words(self) -> str:
        """One line."""
        without = f", {self.without_golden} without a golden answer" if self.without_golden else ""
        return f"{self.passes} passes, {self.known} known from before{without}; {self.simulated} distinct answers looked at"


@dataclass(frozen=True)
class _Work:
    """One distinct answer beside the golden one, or all that passed beside one another."""

    problem: Problem
    answers: tuple[tuple[dict[str, str], tuple[str, ...]], ...]
    """(files, the rollouts that hold them)."""
    key: str

    @property
    def rollouts(self) -> int:
        return sum(len(rollouts) for _, rollouts in self.answers)


def audit_run(
    path: Path, config: RunConfig, choice: Choice = ALL, effort: Effort = THOROUGH, *, jobs: int = 0
) -> AuditDone:
    """Audit the passes of the run `config.run.name` in the history at `path` and store what was found.

    Args:
        choice: which of the run's rollouts; of these the passes are looked at.
        effort: how thoroughly.
        jobs: simulations at one time; 0 means one per core.

    Raises:
        HistoryError: the history cannot be read or written.
        ToolMissingError: no simulator is installed.
    """
    history, run, done = History(path), config.run.name, AuditDone()
    chosen = choice.of(history, run, passed=True)
    done.passes = sum(map(len, chosen.values()))
    problems = problems_as_recorded(history, run, chosen)
    done.without_golden = sum(len(chosen[name]) for name, problem in problems.items() if problem.golden is None)
    if not chosen:
        return done
    with closing(Grader(executor_of(config), limits=limits_of(config))) as grader:
        work = _Auditing(history, run, grader, effort, problems, chosen, done)
        asyncio.run(work.go(jobs or os.cpu_count() or 1))
    return done


@dataclass
class _Auditing:
    history: History
    run: str
    grader: Grader
    effort: Effort
    problems: dict[str, Problem]
    chosen: dict[str, list[str]]
    """Problem id -> rollouts."""
    done: AuditDone
    once: DesignCache = field(default_factory=DesignCache)

    async def go(self, jobs: int) -> None:
        """Look at every answer that is not known; the executor is closed then."""
        tally = Tally("passes", sum(map(len, self.chosen.values())))
        found = NowAndThen[AuditRecord](lambda records: asyncio.to_thread(self.history.record_audits, records))
        with daemon_threads(self.grader.executor) as call:

            async def look(work: _Work) -> None:
                try:
                    told = await call(self._look, work)
                except InfrastructureError as error:
                    self.done.failed[error.message] += work.rollouts
                else:
                    self.done.simulated += len(work.answers)
                    await found.add(*self._records(work, told))

            try:
                await work_off(
                    self._work(tally), look, tally, at_once=jobs, name=lambda work: work.problem.id,
                    size=lambda work: work.rollouts,
                )  # fmt: skip
            finally:
                await found.flush()

    def _work(self, tally: Tally) -> Iterator[_Work]:
        """The distinct answers of one problem after the other, without those that are known."""
        known = {row["rollout"]: row["key"] for row in self.history.query(_KNOWN, {"run": self.run}).to_pylist()}
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
                answers = tuple((dict(pairs), tuple(k for k in keys if k in wanted)) for pairs, keys in equal.items())
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
            sorted(self.grader.executor.tools().items()),
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def _look(self, work: _Work) -> list[Comparison]:
        return audit_passes(self.grader, work.problem, [files for files, _ in work.answers], self.effort, self.once)

    def _records(self, work: _Work, told: list[Comparison]) -> list[AuditRecord]:
        return [
            audit_record(self.run, rollout, work.problem.id, one, self.grader.executor, work.key)
            for (_, rollouts), one in zip(work.answers, told, strict=True)
            for rollout in rollouts
        ]


def audit_record(
    run: str, rollout: str, problem_id: str, found: Comparison, executor: Executor, key: str
) -> AuditRecord:
    """What is stored of a finding; `key` says what it rests on."""
    told = vars(found) | {"trace": [dict(step) for step in found.trace]}
    netlist = told.pop("netlist")
    return AuditRecord(
        run=run, rollout=rollout, problem_id=problem_id, key=key, executor=executor.name, tools=executor.tools(),
        **told, **(vars(netlist) if netlist else {}),
    )  # fmt: skip


def audit_file(asked: FileGrading, records: list[dict[str, Any]], output: Path) -> Counter[str]:
    """Looks at every answer whose verdict in `records` is a pass, and writes what was found to `output`, one JSON object a line.

    Returns result -> answers.

    Raises:
        ProblemError: a file cannot be read or written.
        ToolMissingError, InfrastructureError: the executor cannot start, or fails.
    """
    passed = {(record["id"], record["sample"]) for record in records if record["passed"]}
    lines, _ = read_answers(asked.answers, read_cvdp(asked.problems))
    by_problem: dict[str, list[AnswerLine]] = defaultdict(list)
    for line in lines:
        if (line.problem.id, line.sample) in passed:
            by_problem[line.problem.id].append(line)
    found: dict[str, list[Comparison]] = {}
    with (
        closing(make_executor(asked.executor)) as executor,
        closing(Grader(executor, limits=asked.limits, seed=asked.seed)) as grader,
    ):
        asyncio.run(_look_at_file(grader, by_problem, found, asked.jobs or os.cpu_count() or 1))
    rows = [
        {"id": line.problem.id, "sample": line.sample, **asdict(one)}
        for name, own in by_problem.items()
        for line, one in zip(own, found[name], strict=True)
    ]
    try:
        output.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    except OSError as error:
        raise ProblemError(f"{output} cannot be written: {error.strerror}", "name another file with --audit") from error
    return Counter(row["result"] for row in rows)


async def _look_at_file(
    grader: Grader, lines: dict[str, list[AnswerLine]], found: dict[str, list[Comparison]], at_once: int
) -> None:
    once = DesignCache()
    with daemon_threads(grader.executor) as call:

        async def look(name: str) -> None:
            answers = [line.answer.files for line in lines[name]]
            found[name] = await call(audit_passes, grader, lines[name][0].problem, answers, THOROUGH, once)

        total = sum(map(len, lines.values()))
        await work_off(
            lines, look, Tally("passes looked at", total), at_once=at_once, size=lambda name: len(lines[name])
        )
