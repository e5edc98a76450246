"""Grade a file of answers."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rtl_grader.grading.answer_file import AnswerLine, read_answers
from rtl_grader.grading.executors import make_executor
from rtl_grader.grading.grader import Grader
from rtl_grader.grading.limits import Limits
from rtl_grader.grading.pool import GraderPool
from rtl_grader.grading.verdict_file import VerdictFile, named
from rtl_grader.grading.verdict_record import Record, answer_key, verdict_record
from rtl_grader.problems.cvdp import read_cvdp
from rtl_grader.progress import progress
from rtl_grader.types.verdict import Outcome, Stage
from rtl_grader.work import Tally, process_all


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

    records: list[Record]
    """All records of the output."""
    complaints: int
    """Lines that are not valid answers."""
    graded: int
    """Answers graded by this call."""
    seconds: float

    @property
    def complete(self) -> bool:
        """Whether every line got a verdict."""
        failed = any(
            record["outcome"] == Outcome.INFRASTRUCTURE_ERROR for record in self.records
        )
        return not self.complaints and not failed


def grade_file(grading: FileGrading) -> GradedFile:
    """Write one verdict per line to `grading.output`.

    Lines are written as they finish and sorted into the answers' order at the end. An answer whose verdict
    the output already holds, for the same problem, text, tools and settings, is not graded again unless
    grading itself failed. Equal answers are graded once. Broken answer lines are reported with file and
    line.

    Raises:
        ProblemError: a file cannot be read or written, or the output holds something other than verdicts.
        ToolMissingError, InfrastructureError: the executor cannot start, or a verdict cannot be written.
        KeyboardInterrupt: with the number of verdicts written; the executor is closed, and its simulations have ended.
    """
    tell = progress.get().line
    problems = read_cvdp(grading.problems)
    for broken in problems.broken:
        tell(f"problem left out: {broken}")
    lines, complaints = read_answers(grading.answers, problems)
    for complaint in complaints:
        tell(complaint)
    started = time.monotonic()
    with (
        closing(make_executor(grading.executor)) as executor,
        closing(VerdictFile(grading.output)) as stored,
    ):
        grader = Grader(
            executor,
            limits=grading.limits,
            seed=grading.seed,
            seeds=grading.seeds,
            until=grading.until,
        )
        keys = [key_of(grader, line, grading.repeat) for line in lines]
        records: dict[int, Record] = {}
        for index, key in enumerate(keys):
            if record := stored.get(key):
                records[index] = named(record, lines[index])
        reused = len(records)
        if reused:
            tell(f"{reused} verdicts reused from {grading.output}")
        others = stored.unusable + len(stored) - len({keys[index] for index in records})
        if others > 0:
            tell(f"{others} lines replaced (failed gradings, other answers or other settings)")
            stored.replace(records.values())
        try:
            with closing(GraderPool(grader, grading.jobs)) as pool:
                asyncio.run(_grade_rest(pool, lines, keys, records, stored, grading.repeat))
        except KeyboardInterrupt as interrupt:
            message = f"{len(records)} of {len(lines)} verdicts are written"
            raise KeyboardInterrupt(message) from interrupt
        in_order = [records[index] for index in range(len(lines))]
        stored.replace(in_order)
    for record in in_order:
        if flips := record.get("flips"):
            outcomes = ", ".join(flips)
            tell(f"flips: {record['id']} sample {record['sample']}: {outcomes}")
    tell(f"verdicts written to {grading.output}")
    return GradedFile(
        in_order, len(complaints), len(lines) - reused, time.monotonic() - started
    )


async def _grade_rest(
    pool: GraderPool,
    lines: list[AnswerLine],
    keys: list[str],
    records: dict[int, Record],
    stored: VerdictFile,
    repeat: int,
) -> None:
    """Grade the lines that have no record yet, and add theirs to `records`, which maps the index of a line
    to its record."""
    for index, record in records.items():
        if record["passed"]:
            line = lines[index]
            pool.grader.known_good.learn(line.problem, line.answer, record["cpu_s"])
    equal: dict[str, list[int]] = defaultdict(list)
    for index, key in enumerate(keys):
        if index not in records:
            equal[key].append(index)

    async def grade(indices: list[int]) -> None:
        first = indices[0]
        record = await pool.call(graded_record, pool.grader, lines[first], keys[first], repeat)
        for index in indices:
            records[index] = named(record, lines[index])
            stored.add(records[index])

    def name(indices: list[int]) -> str:
        line = lines[indices[0]]
        return f"{line.problem.id} sample {line.sample}"

    tally = Tally("answers graded", len(lines), len(records))
    await process_all(
        equal.values(), grade, tally, concurrency=pool.threads, name=name, size=len
    )


def key_of(grader: Grader, line: AnswerLine, repeat: int = 1) -> str:
    """Return the `answer_key` of one line under a grader's conditions."""
    return answer_key(grader.key(line.problem, line.answer), line.answer, repeat)


def graded_record(grader: Grader, line: AnswerLine, key: str, repeat: int = 1) -> Record:
    """Grade one line and return its record; `key` is its `key_of`. Does not raise: a failure of grading is
    a verdict too."""
    verdicts = [grader.grade(line.problem, line.answer) for _ in range(repeat)]
    outcomes = tuple(verdict.outcome.value for verdict in verdicts)
    # The worst of several is kept: a pass that does not repeat earns nothing.
    worst = min(verdicts, key=lambda verdict: (verdict.passed, verdict.tests_passed))
    flips = outcomes if len(set(outcomes)) > 1 else ()
    conditions = grader.conditions(line.problem, repeat=repeat)
    return verdict_record(line, worst, key, conditions, flips)
