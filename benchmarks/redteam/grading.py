"""Grade attacks with the real grader and say which verdicts are not the right ones."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection

from benchmarks.redteam.attack import Attack
from benchmarks.redteam.problems import find
from rtl_core.grading.cache import MemoryCache
from rtl_core.grading.executors import make_executor
from rtl_core.grading.grader import Grader
from rtl_core.grading.limits import Limits
from rtl_core.grading.verdict import Outcome
from rtl_core.prompting.answer import Answer
from rtl_core.prompting.extraction import extract_answer

LIMITS = Limits(wall_s=6, cpu_s=6, memory_mb=2048, processes=64, file_mb=16, disk_mb=64, output_mb=8)
MOST_TIME = 1.5
"""A grade may take this many times the wall limit of one service, all in all."""
EXTRACTION_S = 3.0
"""Longer than this (CPU time) no response may be searched for its answer."""
PATIENCE_S = 20.0
LONG_RESPONSE = 10_000


@dataclass(frozen=True)
class Graded:
    """One attack and what became of it."""

    group: str
    attack: Attack
    outcome: Outcome
    reasons: tuple[str, ...]
    wall_s: float
    limit_s: float
    extraction_s: float = 0.0
    """CPU time."""

    @property
    def faults(self) -> list[str]:
        """What is wrong with the verdict; empty when it is right."""
        found = []
        if self.outcome is Outcome.INFRASTRUCTURE_ERROR:
            found.append("infrastructure error")
        elif self.outcome not in self.attack.right:
            found.append("honest refused" if self.attack.honest else "paid")
        if self.wall_s > MOST_TIME * self.limit_s or self.extraction_s > EXTRACTION_S:
            found.append("over time")
        return found


@contextmanager
def grader_for(executor: str, *, warm: bool = True, limits: Limits = LIMITS) -> Iterator[Grader]:
    """A grader with a cache, on an executor of its own; `warm=False` starts bubblewrap without prepared processes."""
    if executor == "bubblewrap" and not warm:
        from rtl_core.grading.executors.bubblewrap import BubblewrapExecutor

        made = BubblewrapExecutor(warm=False)
    else:
        made = make_executor(executor)
    grader = Grader(made, limits=limits, cache=MemoryCache())
    try:
        yield grader
    finally:
        grader.close()
        made.close()


def grade(grader: Grader, group: str, attack: Attack) -> Graded:
    """The verdict on one attack. Raises LookupError when its problem's set is not at hand."""
    problem = find(attack.problem)
    if problem is None:
        raise LookupError(attack.problem)
    extraction = 0.0
    if attack.response is not None:
        response = attack.response() if callable(attack.response) else attack.response
        answer, extraction = _extracted(response, problem.targets)
    elif attack.files is not None:
        answer = Answer(files=dict(attack.files))
    else:
        text = attack.text() if callable(attack.text) else attack.text or ""
        answer = Answer(files={problem.targets[0]: text})
    if attack.primed is not None:
        grader.grade(problem, Answer(files={problem.targets[0]: attack.primed}))
    started = time.monotonic()
    verdict = grader.grade(problem, answer)
    return Graded(
        group, attack, verdict.outcome, verdict.reasons, time.monotonic() - started, grader.limits.wall_s, extraction
    )


def _extracted(response: str, targets: Sequence[str]) -> tuple[Answer, float]:
    """(answer, CPU seconds), found in a process of its own when the response is long, since nothing else could end it."""
    if len(response) < LONG_RESPONSE:
        started = time.thread_time()
        return extract_answer(response, targets), time.thread_time() - started
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_extract, args=(theirs, response, tuple(targets)), daemon=True)
    child.start()
    try:
        if ours.poll(PATIENCE_S):
            return ours.recv()
        return Answer(error="extraction did not end"), PATIENCE_S
    finally:
        child.kill()
        child.join()


def _extract(pipe: Connection, response: str, targets: tuple[str, ...]) -> None:
    started = time.process_time()
    answer = extract_answer(response, targets)
    pipe.send((answer, time.process_time() - started))


def grade_all(grader: Grader, attacks: Iterable[tuple[str, Attack]], jobs: int) -> Iterator[Graded]:
    """The verdicts in order, `jobs` at a time; attacks on problems that are not at hand are left out."""
    there = [(group, attack) for group, attack in attacks if find(attack.problem) is not None]
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(lambda pair: grade(grader, *pair), there)
