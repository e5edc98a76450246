"""A sampling process: takes jobs from its connection, samples them in continuous batches on one thread, sends the answers back."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import NoReturn

from rtl_core.localtinker import RequestError
from rtl_core.localtinker.devices import keep_freed_memory, use_threads
from rtl_core.localtinker.generation import SamplingLoop, as_request
from rtl_core.localtinker.models import ServedModel
from rtl_core.localtinker.samplers import SampledWeights, SamplerPool, SamplingLimits
from rtl_core.localtinker.sampling import SampleJob, SampleRequest


@dataclass(frozen=True)
class Task:
    """To a sampling process: a job, under a number for its answer."""

    number: int
    weights: SampledWeights
    job: SampleJob


@dataclass(frozen=True)
class Cancel:
    """To a sampling process: drop the job of this number."""

    number: int


@dataclass(frozen=True)
class Answer:
    """From a sampling process: the serialised SampleResponse of a job; or why it has no answer, and whether the request is to
    blame. A cancelled job is answered with nothing."""

    number: int
    response: bytes | None = None
    error: str | None = None
    users_fault: bool = False


@dataclass
class Report:
    """From a sampling process: answers, seconds that it has computed so far, and the samplers that it holds ready."""

    answers: list[Answer] = field(default_factory=list)
    busy_s: float = 0.0
    samplers: int = 0


def run_worker(
    models: Mapping[str, ServedModel], limits: SamplingLimits, deterministic: bool, connection: Connection
) -> NoReturn:
    """Work until the service closes the connection."""
    keep_freed_memory()
    use_threads(1)
    pool = SamplerPool(models, limits, deterministic=deterministic)
    Worker(SamplingLoop(pool, threads=1, cache_bytes=limits.cache_bytes), connection).run()


class Worker:
    """The loop of a sampling process."""

    def __init__(self, sampling: SamplingLoop, connection: Connection) -> None:
        self._sampling = sampling
        self._connection = connection
        self._inbox: SimpleQueue[list[Task | Cancel]] = SimpleQueue()
        self._requests: dict[int, SampleRequest] = {}
        self._report = Report()

    def run(self) -> NoReturn:
        threading.Thread(target=self._receive, daemon=True).start()
        while True:
            while self._sampling.idle or not self._inbox.empty():
                for message in self._inbox.get():
                    self._take(message)
            began = time.monotonic()
            self._sampling.advance()
            self._report.busy_s += time.monotonic() - began
            self._send()

    def _receive(self) -> NoReturn:
        """In a thread of its own, so that the service never waits for a step to end before it can hand something over."""
        while True:
            try:
                self._inbox.put(self._connection.recv())
            except (EOFError, OSError):
                os._exit(0)  # the service has gone

    def _take(self, message: Task | Cancel) -> None:
        number = message.number
        if isinstance(message, Task):
            request = as_request(message.job, partial(self._answer, number), partial(self._fail, number))
            self._requests[number] = request
            self._sampling.add(message.weights, request)
        elif number in self._requests:
            self._requests[number].cancelled.set()
            self._put(Answer(number))

    def _answer(self, number: int, response: bytes) -> None:
        self._put(Answer(number, response))

    def _fail(self, number: int, error: BaseException) -> None:
        if isinstance(error, RequestError):
            self._put(Answer(number, error=error.message, users_fault=True))
        else:
            self._put(Answer(number, error=f"{type(error).__name__}: {error}"))

    def _put(self, answer: Answer) -> None:
        if self._requests.pop(answer.number, None) is not None:
            self._report.answers.append(answer)

    def _send(self) -> None:
        """Send the answers of this turn. Rows of cancelled jobs have left their batches by now."""
        if not self._report.answers:
            return
        self._report.samplers = len(self._sampling.pool)
        with contextlib.suppress(OSError):  # the service has gone, which the other thread finds out
            self._connection.send(self._report)
        self._report.answers = []
