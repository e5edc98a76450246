"""The queue of the grading service, which grades equal answers once."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from attrs import define, field
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from rtl_grader.errors import InfrastructureError
from rtl_grader.grading.answer_file import AnswerLine
from rtl_grader.grading.limits import KnownGood
from rtl_grader.grading.pool import GraderPool
from rtl_grader.grading.verdict_file import VerdictFile, named
from rtl_grader.grading.verdict_record import Record
from rtl_grader.records.grade_file import graded_record, key_of
from rtl_grader.settings import Cluster, GradingSection, executor_of, grader_of, graders_of
from rtl_grader.types.problem import Problem
from rtl_grader.types.verdict import Outcome

LONGEST_WAIT_S = 60
MOST_FAILED = 8
"""Consecutive failed gradings after which the executor counts as broken."""


class QueueFullError(InfrastructureError):
    """The queue is full; `retry_after` is in seconds."""

    def __init__(self, waiting: int, queue: int, retry_after: int) -> None:
        super().__init__(
            f"{waiting} answers wait and the queue takes {queue}",
            f"try again in {retry_after} s",
        )
        self.retry_after = retry_after


class Meters:
    """Prometheus metrics of the service."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.graded = Counter(
            "rtl_grader_graded",
            "Answers graded, by outcome",
            ["outcome"],
            registry=self.registry,
        )
        self.repeats = Counter(
            "rtl_grader_known", "Answers whose verdict was known", registry=self.registry
        )
        self.responses = Counter(
            "rtl_grader_responses",
            "HTTP responses, by status code",
            ["code"],
            registry=self.registry,
        )
        self.hung_up = Counter(
            "rtl_grader_hung_up",
            "Requests whose client left before their end",
            registry=self.registry,
        )
        self.seconds = Histogram(
            "rtl_grader_seconds", "Seconds of one grading", registry=self.registry
        )
        self.waiting = Gauge(
            "rtl_grader_waiting", "Answers that wait or are graded", registry=self.registry
        )


@define(eq=False)
class GradingQueue:
    """Grades and stores answers. Use it from one event loop; gradings run on the threads of `pool`."""

    pool: GraderPool
    problems: Mapping[str, Problem]
    store: VerdictFile
    capacity: int
    """Maximum number of answers that wait or are being graded."""
    meters: Meters = field(factory=Meters)
    failed: int = 0
    """Failed gradings since the last success."""
    _under_way: dict[str, asyncio.Task[Record]] = field(factory=dict)
    _mean_s: float = 1.0

    def __attrs_post_init__(self) -> None:
        self.meters.waiting.set_function(lambda: len(self._under_way))

    @property
    def healthy(self) -> bool:
        return self.failed < MOST_FAILED

    async def grade(self, lines: Sequence[AnswerLine]) -> list[Record]:
        """Return the records of answers, in order. A record with outcome `infrastructure_error` is not stored.

        Admitted answers are graded and stored even if the caller is cancelled.

        Raises:
            QueueFullError: no room for the new answers; none was admitted.
            InfrastructureError: a verdict could not be stored.
        """
        keys = [key_of(self.pool.grader, line) for line in lines]
        stored = {key: record for key in keys if (record := self.store.get(key))}
        present = stored.keys() | self._under_way.keys()
        new = {key: line for key, line in zip(keys, lines, strict=True) if key not in present}
        waiting = len(self._under_way)
        if new and waiting + len(new) > self.capacity:
            wait_s = math.ceil(self._mean_s * (waiting + 1) / self.pool.threads)
            raise QueueFullError(waiting, self.capacity, min(LONGEST_WAIT_S, max(1, wait_s)))
        for key, line in new.items():
            self._under_way[key] = asyncio.create_task(self._grade(key, line))
        self.meters.repeats.inc(sum(key in stored for key in keys))
        tasks = {key: self._under_way[key] for key in keys if key not in stored}
        results = await asyncio.gather(*map(asyncio.shield, tasks.values()))
        records = {**stored, **dict(zip(tasks, results, strict=True))}
        return [named(records[key], line) for key, line in zip(keys, lines, strict=True)]

    async def _grade(self, key: str, line: AnswerLine) -> Record:
        try:
            record = await self.pool.call(graded_record, self.pool.grader, line, key)
            failed = record["outcome"] == Outcome.INFRASTRUCTURE_ERROR
            self.failed = self.failed + 1 if failed else 0
            if not failed:
                self.store.add(record)
            self.meters.graded.labels(record["outcome"]).inc()
            self.meters.seconds.observe(record["wall_s"])
            self._mean_s += 0.05 * (record["wall_s"] - self._mean_s)
            return record
        finally:
            del self._under_way[key]


@contextmanager
def open_queue(
    problems: Sequence[Problem],
    settings: GradingSection,
    cluster: Cluster | None,
    output: Path,
    capacity: int,
) -> Iterator[GradingQueue]:
    """A queue for answers to problems, with the grader of the settings and the stored verdicts of `output`.

    Raises the errors of `make_executor` and `VerdictFile`.
    """
    threads = graders_of(settings, cluster)
    with ExitStack() as stack:
        store = stack.enter_context(closing(VerdictFile(output)))
        grader = grader_of(
            settings, cluster or executor_of(settings), KnownGood(passing=store.passing)
        )
        pool = stack.enter_context(closing(GraderPool(grader, threads)))
        yield GradingQueue(pool, {problem.id: problem for problem in problems}, store, capacity)
