"""Regrading: grade stored rollouts again, with other tools or another seed.

Answers and problems come from the history, so neither the data set nor the Tinker service is needed. The
verdicts used in training stay as they are; new ones are stored under a label, and repeating a label grades
only what is missing. The verdict cache is not used: regrading with the run's own tools shows whether
verdicts are reproducible.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from attrs import define, field

from rtl_core.config import RunConfig
from rtl_core.errors import HistoryError
from rtl_core.history.store import History
from rtl_core.reporting.blocks import Table
from rtl_core.rollouts.resumable import Choice, problems_as_recorded, texts_of
from rtl_grader.extraction.answer_to import answer_to
from rtl_grader.grading.limits import KnownGood
from rtl_grader.grading.pool import GraderPool
from rtl_grader.settings import Cluster, executor_of, grader_of, graders_of
from rtl_grader.types.problem import Problem
from rtl_grader.types.verdict import Outcome, Verdict
from rtl_grader.words import counted

_DONE = "SELECT rollout FROM regrades WHERE label = $label AND run = $run"
_CHANGES = """
SELECT was, now, count(*) AS rollouts, count(DISTINCT problem_id) AS problems, min(rollout) AS example
FROM changed_verdicts WHERE label = $label AND run = $run GROUP BY was, now ORDER BY rollouts DESC, was, now
"""
_COUNT = """
SELECT count(*) AS graded, count(*) FILTER (WHERE g.outcome <> v.outcome) AS changed,
       count(*) FILTER (WHERE v.outcome = 'passed') AS passed_was,
       count(*) FILTER (WHERE g.outcome = 'passed') AS passed_now
FROM regrades g JOIN verdicts v USING (rollout) WHERE g.label = $label AND g.run = $run
"""

_HEADER = "was | is now | rollouts: | problems: | for example"


@define(eq=False)
class Regrading:
    """A regrading in progress."""

    run: str
    label: str
    history: History
    pool: GraderPool
    problems: dict[str, Problem]
    waiting: dict[str, list[str]]
    """Mapping of problem id to rollouts that have no verdict under the label yet."""
    n_known: int
    """Number of rollouts that already had one."""
    failed: Counter[str] = field(factory=Counter)
    """Mapping of why grading itself failed to the number of rollouts."""

    async def grade(self, problem_id: str) -> None:
        """Grade one problem's waiting rollouts and record their verdicts. Equal answers are graded once.

        If grading itself fails, the rollout is counted in `failed` and left for a repeat.
        """
        problem, waiting = self.problems[problem_id], self.waiting[problem_id]
        texts = await asyncio.to_thread(texts_of, self.history, self.run, problem_id, waiting)
        answers = [answer_to(problem, text) for text in texts.values()]
        verdicts = await self.pool.grade(problem, answers)
        rows: list[tuple[str, Verdict]] = []
        for rollout, verdict in zip(texts, verdicts, strict=True):
            if verdict.outcome is Outcome.INFRASTRUCTURE_ERROR:
                self.failed["; ".join(verdict.reasons)] += 1
            else:
                rows.append((rollout, verdict))
        if rows:
            await asyncio.to_thread(self.history.record_regrades, self.label, rows)

    def in_words(self) -> str:
        """One line: number of verdicts, and how many of them changed."""
        (n,) = self._query(_COUNT)
        graded, changed = counted(n["graded"], "rollout"), counted(n["changed"], "verdict")
        return (
            f"{self.label}: {graded} graded again, {changed} changed; "
            f"passed {n['passed_was']} before, {n['passed_now']} now"
        )

    def changes(self) -> Table:
        """Table of changed verdicts, with an example rollout of each change."""
        rows = [[str(value) for value in row.values()] for row in self._query(_CHANGES)]
        return Table("", "Verdicts that changed", "", _HEADER, rows or [["none"]])

    def _query(self, sql: str) -> list[dict[str, Any]]:
        return self.history.rows(sql, label=self.label, run=self.run)


@contextmanager
def open_regrading(
    path: Path,
    config: RunConfig,
    choice: Choice,
    *,
    label: str | None = None,
    cluster: Cluster | None = None,
) -> Iterator[Regrading]:
    """Prepare to grade rollouts of a stored run again, with executor, image and seed of `config.grading`.

    Args:
        label: name of the regrading; derived from executor, tools and seed by default.
        cluster: runs the jobs instead of a local executor; it is closed at the end, which ends running jobs.

    Raises:
        HistoryError: the run holds no graded rollout of that choice.
    """
    history, run, section = History(path), config.run.name, config.grading
    known_good = KnownGood(*history.cpu_of_known_good())
    executor = cluster or executor_of(section)
    # Under another seed or image a harness may fail every answer; that is a change to report, not an error.
    grader = grader_of(section, executor, known_good).but(excuses_answers=False)
    with closing(GraderPool(grader, graders_of(section, cluster))) as pool:
        if not label:
            tools = repr(sorted(executor.tools().items()))
            digest = hashlib.sha256(tools.encode()).hexdigest()[:8]
            label = f"{executor.name}-{digest}-seed{section.seed}"
        by_problem = choice.of(history, run)
        if not by_problem:
            raise HistoryError(
                f"run {run!r} has no graded rollout of that kind",
                f"see `rtl-distill query outcomes --run {run}`",
            )
        done = set(history.column(_DONE, label=label, run=run))
        waiting: dict[str, list[str]] = {}
        n_known = 0
        for name, rollouts in by_problem.items():
            rest = [rollout for rollout in rollouts if rollout not in done]
            n_known += len(rollouts) - len(rest)
            if rest:
                waiting[name] = rest
        problems = problems_as_recorded(history, run, waiting)
        yield Regrading(run, label, history, pool, problems, waiting, n_known)
