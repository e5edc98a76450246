"""The queue of the grading service, which grades equal answers once, and the file that stores its verdicts."""

from __future__ import annotations

import asyncio
import fcntl
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from attrs import define, field
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from rtl_core.config import RunConfig
from rtl_core.errors import ConfigError, InfrastructureError, ProblemError
from rtl_core.grading.answer_file import AnswerLine
from rtl_core.grading.grader import Grader
from rtl_core.grading.limits import KnownGood
from rtl_core.grading.verdict_record import sealed
from rtl_core.rollouts.verdict_records import graded_record, key_of
from rtl_core.run.check.machine import problems_of
from rtl_core.run.graders import Cluster, executor_of, grader_of, graders_of
from rtl_core.types.problem import Problem
from rtl_core.types.verdict import Outcome

LONGEST_WAIT_S = 60
MOST_FAILED = 8
"""Consecutive failed gradings after which the executor counts as broken."""


class QueueFullError(InfrastructureError):
    """The queue is full; `retry_after` is in seconds."""

    def __init__(self, waiting: int, queue: int, retry_after: int) -> None:
        super().__init__(f"{waiting} answers wait and the queue takes {queue}", f"try again in {retry_after} s")
        self.retry_after = retry_after


class Meters:
    """Prometheus metrics of the service."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.graded = Counter("rtl_grader_graded", "Answers graded, by outcome", ["outcome"], registry=self.registry)
        self.known = Counter("rtl_grader_known", "Answers whose verdict was known", registry=self.registry)
        self.responses = Counter(
            "rtl_grader_responses", "HTTP responses, by status code", ["code"], registry=self.registry
        )
        self.hung_up = Counter(
            "rtl_grader_hung_up", "Requests whose client left before their end", registry=self.registry
        )
        self.seconds = Histogram("rtl_grader_seconds", "Seconds of one grading", registry=self.registry)
        self.waiting = Gauge("rtl_grader_waiting", "Answers that wait or are graded", registry=self.registry)


class VerdictStore:
    """Records by key. Memory holds only keys and file offsets, about 200 bytes for each record. Not thread-safe.

    A line is written to the operating system before its record is returned to a client, so a killed process loses at most the
    line that it was writing, which the next process drops.
    """

    def __init__(self, path: Path) -> None:
        """Open or create the file. Raises ConfigError if another process has it open, ProblemError if it holds anything else."""
        self.path = path
        self.passing: dict[str, float] = {}
        """Problem fingerprint -> most CPU seconds of a passing answer, for `KnownGood`."""
        self._places: dict[bytes, tuple[int, int]] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a+b", buffering=0)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(f"another process has {path} open", "name another file with --output") from error
        except OSError as error:
            raise ProblemError(f"cannot open the verdicts file {path}: {error.strerror}", "check the path") from error
        self._end = 0
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.endswith(b"\n"):
                    break  # cut off by a kill
                try:
                    self._index(json.loads(line), len(line))
                except (ValueError, KeyError, TypeError) as error:
                    raise ProblemError(
                        f"{path}:{number}: not a verdict, so nothing is added to this file", "name another file"
                    ) from error
        self._file.truncate(self._end)

    def get(self, key: str) -> dict[str, Any] | None:
        """Return the record with this key, or None."""
        place = self._places.get(bytes.fromhex(key))
        return None if place is None else json.loads(os.pread(self._file.fileno(), place[1], place[0]))

    def add(self, record: dict[str, Any]) -> None:
        """Append a record with a new key. Raises InfrastructureError if it cannot be written."""
        line = json.dumps(record).encode() + b"\n"
        try:
            if self._file.write(line) != len(line):
                raise OSError("No space left on device")
        except OSError as error:
            self._file.truncate(self._end)
            raise InfrastructureError(f"{self.path} cannot be written: {error}", "is the disk full?") from error
        self._index(record, len(line))

    def close(self) -> None:
        self._file.close()

    def __len__(self) -> int:
        return len(self._places)

    def _index(self, record: dict[str, Any], length: int) -> None:
        self._places[bytes.fromhex(record["key"])] = self._end, length
        self._end += length
        if record["passed"]:
            problem = record["graded"]["problem"]
            self.passing[problem] = max(record["cpu_s"], self.passing.get(problem, 0.0))


@define(eq=False)
class GradingQueue:
    """Grades and stores answers. Use it from one event loop; gradings run on the threads of `pool`."""

    grader: Grader
    problems: Mapping[str, Problem]
    store: VerdictStore
    pool: ThreadPoolExecutor
    threads: int
    """Size of `pool`."""
    capacity: int
    """Maximum number of answers that wait or are being graded."""
    meters: Meters = field(factory=Meters)
    failed: int = 0
    """Failed gradings since the last success."""
    _under_way: dict[str, asyncio.Task[dict[str, Any]]] = field(factory=dict)
    _mean_s: float = 1.0

    def __attrs_post_init__(self) -> None:
        self.meters.waiting.set_function(lambda: len(self._under_way))

    @property
    def healthy(self) -> bool:
        return self.failed < MOST_FAILED

    async def grade(self, lines: Sequence[AnswerLine]) -> list[dict[str, Any]]:
        """Return the records of answers, in order. A record with outcome `infrastructure_error` is not stored.

        Admitted answers are graded and stored even if the caller is cancelled.

        Raises:
            QueueFullError: no room for the new answers; none was admitted.
            InfrastructureError: a verdict could not be stored.
        """
        keys = [key_of(self.grader, line) for line in lines]
        known = {key: record for key in keys if (record := self.store.get(key))}
        there = known.keys() | self._under_way.keys()
        new = {key: line for key, line in zip(keys, lines, strict=True) if key not in there}
        if new and len(self._under_way) + len(new) > self.capacity:
            wait_s = math.ceil(self._mean_s * (len(self._under_way) + 1) / self.threads)
            raise QueueFullError(len(self._under_way), self.capacity, min(LONGEST_WAIT_S, max(1, wait_s)))
        for key, line in new.items():
            self._under_way[key] = asyncio.create_task(self._grade(key, line))
        self.meters.known.inc(sum(key in known for key in keys))
        asked = {key: self._under_way[key] for key in keys if key not in known}
        done = dict(zip(asked, await asyncio.gather(*map(asyncio.shield, asked.values())), strict=True))
        return [_named(done.get(key) or known[key], line) for key, line in zip(keys, lines, strict=True)]

    async def _grade(self, key: str, line: AnswerLine) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        try:
            record = await loop.run_in_executor(self.pool, graded_record, self.grader, line, key)
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
def open_queue(config: RunConfig, cluster: Cluster | None, output: Path, capacity: int) -> Iterator[GradingQueue]:
    """A queue with the problems and grader of a configuration and the stored verdicts of `output`.

    Raises the errors of `problems_of`, `make_executor` and `VerdictStore`.
    """
    loaded, threads = problems_of(config), graders_of(config, cluster)
    with ExitStack() as stack:
        store = stack.enter_context(closing(VerdictStore(output)))
        pool = ThreadPoolExecutor(threads, thread_name_prefix="grade")
        stack.callback(pool.shutdown, cancel_futures=True)
        executor = cluster or stack.enter_context(closing(executor_of(config)))
        grader = stack.enter_context(closing(grader_of(config, executor, KnownGood(passing=store.passing))))
        problems = {problem.id: problem for problem in loaded.every}
        yield GradingQueue(grader, problems, store, pool, threads, capacity)


def _named(record: dict[str, Any], line: AnswerLine) -> dict[str, Any]:
    """The record with the id and sample of the request, since equal answers share one record."""
    place = {"id": line.problem.id, "sample": line.sample}
    return record if place.items() <= record.items() else sealed({**record, **place})
