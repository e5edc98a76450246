"""Grades many answers on several threads: those to one problem together, or a file of them as they finish."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor

from rtl_core.grading.answer_file import AnswerLine
from rtl_core.grading.grader import Grader
from rtl_core.grading.progress import GradingProgress
from rtl_core.grading.verdict_file import Graded
from rtl_core.types.answer import Answer
from rtl_core.types.problem import Problem
from rtl_core.types.verdict import Stage, Verdict

TELL_S = 1.0
"""How often the progress is renewed while nothing finishes."""
END_S = 1.0
"""How long threads are waited for once the executor is closed."""


async def grade_all(
    grader: Grader, pool: ThreadPoolExecutor, problem: Problem, answers: Sequence[Answer], until: Stage | None = None
) -> list[Verdict]:
    """Verdicts on answers to one problem, in order. Equal answers are graded once; the verdicts of all but the first are `cached`.

    `until` is the last stage that is graded (None: the grader's own). Does not raise: a failure of grading is a verdict, too.
    """
    names = [answer.model_dump_json() for answer in answers]
    distinct = dict(zip(names, answers, strict=True))
    loop = asyncio.get_running_loop()
    gradings = (loop.run_in_executor(pool, grader.grade, problem, answer, until) for answer in distinct.values())
    by_name = dict(zip(distinct, await asyncio.gather(*gradings), strict=True))
    verdicts = []
    for name in names:
        verdicts.append(by_name[name])
        by_name[name] = by_name[name].model_copy(update={"cached": True, "wall_s": 0.0})
    return verdicts


def graded(
    grader: Grader,
    lines: Sequence[AnswerLine],
    waiting: Sequence[int],
    jobs: int,
    repeat: int,
    progress: GradingProgress,
) -> Generator[tuple[int, Graded], None, None]:
    """(index, verdict) of the waiting lines as they finish. Closed early, it closes the grader's executor, so that all end.

    The threads are daemons: an answer that hangs must hold up neither an interrupt nor the end of the process.
    """
    todo: queue.SimpleQueue[int] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[int, Graded | BaseException]] = queue.SimpleQueue()
    left = threading.Event()
    for index in waiting:
        todo.put(index)

    def work() -> None:
        while not left.is_set():
            try:
                index = todo.get_nowait()
            except queue.Empty:
                return
            progress.begun(index)
            try:
                result: Graded | BaseException = _grade(grader, lines[index], repeat)
            except BaseException as error:
                result = error
            progress.ended(index)
            done.put((index, result))

    threads = [
        threading.Thread(target=work, name=f"grade-{number}", daemon=True) for number in range(min(jobs, len(waiting)))
    ]
    for thread in threads:
        thread.start()
    try:
        for _ in waiting:
            while True:
                try:
                    index, result = done.get(timeout=TELL_S)
                    break
                except queue.Empty:
                    progress.renew()
            if isinstance(result, BaseException):
                raise result
            yield index, result
    except BaseException:
        left.set()
        # What is in flight ends with the executor, which nobody needs any more.
        grader.executor.close()
        deadline = time.monotonic() + END_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        raise


def _grade(grader: Grader, line: AnswerLine, repeat: int) -> Graded:
    verdicts = [grader.grade(line.problem, line.answer) for _ in range(repeat)]
    outcomes = tuple(verdict.outcome.value for verdict in verdicts)
    # The worst of several is kept: what does not hold is not paid.
    worst = min(verdicts, key=lambda verdict: (verdict.passed, verdict.tests_passed))
    return Graded(worst, outcomes if len(set(outcomes)) > 1 else ())
