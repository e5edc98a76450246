"""Grade attacks with the real grader and find wrong verdicts."""

import multiprocessing
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection

from benchmarks.redteam.attack import Attack
from benchmarks.redteam.problems import find
from rtl_grader.extraction.response import extract_answer
from rtl_grader.grading.cache import MemoryCache
from rtl_grader.grading.executors import make_executor
from rtl_grader.grading.executors.bubblewrap import BubblewrapExecutor
from rtl_grader.grading.grader import Grader
from rtl_grader.grading.limits import Limits
from rtl_grader.types.answer import Answer
from rtl_grader.types.verdict import Outcome

LIMITS = Limits(
    wall_s=6, cpu_s=6, memory_mb=2048, processes=64, file_mb=16, disk_mb=64, output_mb=8
)
MOST_TIME = 1.5
"""Largest wall time of a grade, relative to the wall limit of one service."""
EXTRACTION_S = 3.0
"""Largest CPU time for extracting the answer from a response."""
PATIENCE_S = 300.0
LONG_RESPONSE = 10_000
SPIN_S = 0.3
"""CPU time spent to measure how busy the machine is."""


@dataclass(frozen=True)
class Graded:
    """An attack and its verdict."""

    group: str
    attack: Attack
    outcome: Outcome
    reasons: tuple[str, ...]
    wall_s: float
    """Wall time of the grade; if it was repeated, scaled to an idle machine."""
    limit_s: float
    extraction_s: float = 0.0
    """CPU time."""

    @property
    def slow(self) -> bool:
        return self.wall_s > MOST_TIME * self.limit_s

    @property
    def faults(self) -> list[str]:
        """What is wrong with the verdict; empty when it is right."""
        found = []
        if self.outcome is Outcome.INFRASTRUCTURE_ERROR:
            found.append("infrastructure error")
        elif self.outcome not in self.attack.right:
            found.append("honest refused" if self.attack.honest else "paid")
        if self.slow or self.extraction_s > EXTRACTION_S:
            found.append("over time")
        return found


@contextmanager
def grader_for(
    executor: str, *, warm: bool = True, limits: Limits = LIMITS
) -> Iterator[Grader]:
    """A grader with a cache on a new executor; `warm=False` starts bubblewrap without prepared processes."""
    with (
        make_executor(executor)
        if warm or executor != "bubblewrap"
        else BubblewrapExecutor(warm=False) as made,
        closing(Grader(made, limits=limits, cache=MemoryCache())) as grader,
    ):
        yield grader


def grade(grader: Grader, group: str, attack: Attack) -> Graded:
    """The verdict on an attack. Raises LookupError if its problem's set is not available."""
    problem = find(attack.problem)
    if problem is None:
        raise LookupError(attack.problem)
    answer, extraction_s = _answer(attack, problem.targets)
    if attack.primed is not None:
        grader.grade(problem, Answer(files={problem.targets[0]: attack.primed}))
    started = time.monotonic()
    verdict = grader.grade(problem, answer)
    spent = time.monotonic() - started
    return Graded(
        group,
        attack,
        verdict.outcome,
        verdict.reasons,
        spent,
        grader.limits.wall_s,
        extraction_s,
    )


def confirmed(grader: Grader, graded: Graded) -> Graded:
    """The same verdict; where it was slow, with the time of a second grade, scaled to an idle machine. Call
    it while nothing else is graded."""
    if not graded.slow:
        return graded
    share = core_share()
    wall_s = grade(grader.but(cache=None), graded.group, graded.attack).wall_s
    return replace(graded, wall_s=wall_s * min(share, core_share()))


def core_share() -> float:
    """The share of a core that a busy thread gets at the moment; 1 on an idle machine."""
    started, spent = time.monotonic(), time.thread_time()
    while time.thread_time() - spent < SPIN_S:
        pass
    return min(1.0, SPIN_S / (time.monotonic() - started))


def _answer(attack: Attack, targets: Sequence[str]) -> tuple[Answer, float]:
    """(answer, CPU seconds of its extraction)."""
    if attack.response is not None:
        return _extracted(
            attack.response() if callable(attack.response) else attack.response, targets
        )
    if attack.files is not None:
        return Answer(files=dict(attack.files)), 0.0
    text = attack.text() if callable(attack.text) else attack.text or ""
    return Answer(files={targets[0]: text}), 0.0


def _extracted(response: str, targets: Sequence[str]) -> tuple[Answer, float]:
    """(answer, CPU seconds). A long response is searched in a child process, which can be killed."""
    if len(response) < LONG_RESPONSE:
        started = time.thread_time()
        return extract_answer(response, targets), time.thread_time() - started
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(
        target=_extract, args=(theirs, response, tuple(targets)), daemon=True
    )
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


def grade_all(
    grader: Grader, attacks: Iterable[tuple[str, Attack]], jobs: int
) -> Iterator[Graded]:
    """The verdicts, `jobs` at a time; slow grades come last and are confirmed one by one. Attacks on
    unavailable problems are left out."""
    there = [(group, attack) for group, attack in attacks if find(attack.problem) is not None]
    slow = []
    with ThreadPoolExecutor(jobs) as pool:
        for graded in pool.map(lambda pair: grade(grader, *pair), there):
            if graded.slow:
                slow.append(graded)
            else:
                yield graded
    for graded in slow:
        yield confirmed(grader, graded)
