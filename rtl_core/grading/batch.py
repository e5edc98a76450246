"""Grades a file of answers against a file of problems, with progress and a summary on the console.

Verdicts are written as they finish; what is finished survives whatever ends the process, and the same call goes on from
there (verdict_file.py).
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from contextlib import closing
from pathlib import Path

from rich.console import Console

from rtl_core.grading.answer_file import AnswerLine, read_answers
from rtl_core.grading.executors import make_executor
from rtl_core.grading.grader import Grader
from rtl_core.grading.limits import Limits
from rtl_core.grading.pool import graded
from rtl_core.grading.progress import GradingProgress, print_summary, tell_taken_up
from rtl_core.grading.verdict_file import Place, VerdictFile, verdict_record
from rtl_core.problems.cvdp import read_cvdp
from rtl_core.types.verdict import Outcome, Stage


class GradingInterruptedError(KeyboardInterrupt):
    """Grading was interrupted; the executor is closed, and `done` of `total` verdicts are in the output."""

    def __init__(self, done: int, total: int) -> None:
        super().__init__(f"{done} of {total} verdicts are written")
        self.done, self.total = done, total


def grade_file(
    problems: Path,
    answers: Path,
    output: Path,
    *,
    executor: str = "bubblewrap",
    until: Stage = Stage.TESTS,
    jobs: int = 0,
    seed: int = 0,
    seeds: int = 3,
    limits: Limits | None = None,
    repeat: int = 1,
    console: Console | None = None,
) -> bool:
    """Writes one verdict a line to `output`; True when every answer line got one.

    Lines are written as they finish, and put into the answers' order at the end. Answers that `output` already holds a
    verdict on, from the same problem, answer text, tools and settings, are not graded again, unless grading itself failed.
    Broken answer lines are named on the console with file and line, the others are graded.

    Raises:
        ProblemError: a file cannot be read or written, or `output` holds something else than verdicts.
        ToolMissingError, InfrastructureError: the executor cannot start.
        GradingInterruptedError: on KeyboardInterrupt, with the executor closed and its simulations ended.
    """
    console = console or Console(stderr=True)
    found = read_cvdp(problems)
    for broken in found.broken:
        console.print(f"problem left out: {broken}", style="yellow", markup=False, highlight=False, soft_wrap=True)
    lines, complaints = read_answers(answers, found)
    for complaint in complaints:
        console.print(complaint, style="bold red", markup=False, highlight=False, soft_wrap=True)
    started = time.monotonic()
    engine = make_executor(executor)
    grader = Grader(engine, limits=limits, seed=seed, seeds=seeds, until=until)
    try:
        places = [Place(line.problem.id, line.sample, answer_key(grader, line, repeat)) for line in lines]
        verdicts = VerdictFile(output, places)
        records = dict(verdicts.known)
        for index, record in records.items():
            if record["passed"]:
                grader.known_good.learn(lines[index].problem, lines[index].answer, record["cpu_s"])
        waiting = [index for index in range(len(lines)) if index not in records]
        tell_taken_up(console, verdicts)
        try:
            with (
                GradingProgress(console, lines, len(records)) as progress,
                closing(graded(grader, lines, waiting, jobs or os.cpu_count() or 1, repeat, progress)) as finished,
            ):
                for index, result in finished:
                    records[index] = verdict_record(lines[index], result, places[index].key)
                    verdicts.add(index, records[index])
                    progress.finished()
        except KeyboardInterrupt as interrupt:
            # The simulations in flight end with the executor; whoever waits for one gets no verdict to write.
            raise GradingInterruptedError(len(records), len(lines)) from interrupt
        finally:
            verdicts.close()
    finally:
        grader.close()
        engine.close()
    print_summary(console, list(records.values()), len(waiting), time.monotonic() - started)
    console.print(f"verdicts written to {output}", markup=False, highlight=False, soft_wrap=True)
    return not complaints and not any(r["outcome"] == Outcome.INFRASTRUCTURE_ERROR for r in records.values())


def answer_key(grader: Grader, line: AnswerLine, repeat: int) -> str:
    """SHA-256 (hex) over all that decides the verdict on a line: problem, answer, tools, settings, the grader's version."""
    parts = (grader.key(line.problem, line.answer), line.answer.error, list(line.answer.ignored), repeat)
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
