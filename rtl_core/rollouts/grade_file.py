"""Grading a file of answers against a file of problems.

Each verdict is written as soon as it is known. It survives however the process ends, and the same call resumes from there
(grading/verdict_file.py).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table as RichTable

from rtl_core.grading.answer_file import AnswerLine, read_answers
from rtl_core.grading.executors import make_executor
from rtl_core.grading.grader import Grader
from rtl_core.grading.limits import Limits
from rtl_core.grading.verdict_file import Place, VerdictFile
from rtl_core.grading.verdict_record import answer_key, conditions_of, verdict_record
from rtl_core.observe.progress import progress
from rtl_core.problems.cvdp import read_cvdp
from rtl_core.reporting.blocks import Table
from rtl_core.reporting.console import rich_table
from rtl_core.reporting.text import counted
from rtl_core.rollouts.resumable import Tally, daemon_threads, process_all
from rtl_core.types.verdict import Outcome, Stage


@dataclass(frozen=True)
class FileGrading:
    """Which answers to grade, and how."""

    problems: Path
    answers: Path
    output: Path
    executor: str = "bubblewrap"
    until: Stage = Stage.TESTS
    jobs: int = 0
    """Answers graded concurrently; 0 means one per core."""
    seed: int = 0
    seeds: int = 3
    limits: Limits | None = None
    repeat: int = 1
    """How often each answer is graded."""


@dataclass(frozen=True)
class GradedFile:
    """Result of `grade_file`."""

    records: list[dict[str, Any]]
    """All records of the output."""
    complaints: int
    """Lines that are not valid answers."""
    graded: int
    """Answers graded by this call."""
    seconds: float

    @property
    def complete(self) -> bool:
        """Whether every line got a verdict."""
        failed = any(record["outcome"] == Outcome.INFRASTRUCTURE_ERROR for record in self.records)
        return not self.complaints and not failed

    def table(self) -> RichTable:
        """Number and share of answers by outcome."""
        total = len(self.records)
        whole = f"{counted(total, 'answer')} graded in {self.seconds:.1f} s"
        title = whole if self.graded == total else f"{total} answers, {self.graded} graded now"
        tally = Counter(record["outcome"] for record in self.records)
        rows = [[o.value, str(tally[o]), f"{tally[o] / total:.1%}"] for o in Outcome if tally[o]]
        return rich_table(Table("", title, "", [("outcome", "left"), ("answers", "right"), ("share", "right")], rows))


def grade_file(asked: FileGrading) -> GradedFile:
    """Write one verdict per line to `asked.output`.

    Lines are written as they finish and sorted into the answers' order at the end. An answer whose verdict the output already
    holds, for the same problem, text, tools and settings, is not graded again unless grading itself failed. Broken answer
    lines are reported with file and line.

    Raises:
        ProblemError: a file cannot be read or written, or the output holds something other than verdicts.
        ToolMissingError, InfrastructureError: the executor cannot start.
        KeyboardInterrupt: with the number of verdicts written; the executor is closed, and its simulations have ended.
    """
    tell = progress.get().line
    found = read_cvdp(asked.problems)
    for broken in found.broken:
        tell(f"problem left out: {broken}")
    lines, complaints = read_answers(asked.answers, found)
    for complaint in complaints:
        tell(complaint)
    started = time.monotonic()
    with (
        closing(make_executor(asked.executor)) as executor,
        closing(Grader(executor, limits=asked.limits, seed=asked.seed, seeds=asked.seeds, until=asked.until)) as grader,
    ):
        places = [Place(line.problem.id, line.sample, key_of(grader, line, asked.repeat)) for line in lines]
        with closing(VerdictFile(asked.output, places)) as verdicts:
            if words := verdicts.in_words():
                tell(words)
            try:
                asyncio.run(_grade_rest(grader, lines, places, verdicts, asked))
            except KeyboardInterrupt as interrupt:
                done = f"{len(verdicts.records)} of {len(lines)} verdicts are written"
                raise KeyboardInterrupt(done) from interrupt
    for record in verdicts.records.values():
        if "flips" in record:
            tell(f"flips: {record['id']} sample {record['sample']}: {', '.join(record['flips'])}")
    tell(f"verdicts written to {asked.output}")
    graded = len(lines) - verdicts.taken_up
    return GradedFile(list(verdicts.records.values()), len(complaints), graded, time.monotonic() - started)


async def _grade_rest(
    grader: Grader, lines: list[AnswerLine], places: list[Place], verdicts: VerdictFile, asked: FileGrading
) -> None:
    """Grade the lines that have no record yet."""
    for index, record in verdicts.records.items():
        if record["passed"]:
            grader.known_good.learn(lines[index].problem, lines[index].answer, record["cpu_s"])

    with daemon_threads(grader.executor) as call:

        async def grade(index: int) -> None:
            verdicts.add(index, await call(graded_record, grader, lines[index], places[index].key, asked.repeat))

        await process_all(
            [index for index in range(len(lines)) if index not in verdicts.records],
            grade,
            Tally("answers graded", len(lines), len(verdicts.records)),
            concurrency=asked.jobs or os.cpu_count() or 1,
            name=lambda index: f"{lines[index].problem.id} sample {lines[index].sample}",
        )


def key_of(grader: Grader, line: AnswerLine, repeat: int = 1) -> str:
    """Return the `answer_key` of one line under a grader's conditions."""
    return answer_key(grader.key(line.problem, line.answer), line.answer, repeat)


def graded_record(grader: Grader, line: AnswerLine, key: str, repeat: int = 1) -> dict[str, Any]:
    """Grade one line and return its record; `key` is its `key_of`. Does not raise: a failure of grading is a verdict too."""
    verdicts = [grader.grade(line.problem, line.answer) for _ in range(repeat)]
    outcomes = tuple(verdict.outcome.value for verdict in verdicts)
    # The worst of several is kept: a pass that does not repeat earns nothing.
    worst = min(verdicts, key=lambda verdict: (verdict.passed, verdict.tests_passed))
    flips = outcomes if len(set(outcomes)) > 1 else ()
    return verdict_record(line, worst, key, conditions_of(grader, line.problem, repeat), flips)
