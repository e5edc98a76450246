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

from rtl_core.localtinker import RequestError, SamplingError
from rtl_core.localtinker.devices import keep_freed_memory, use_threads
from rtl_core.localtinker.generation import SamplingLoop, as_request
from rtl_core.localtinker.models import ServedModel
from rtl_core.localtinker.samplers import SampledWeights, SamplerPool, SamplingLimits
from rtl_core.localtinker.sampling import SampleJob, SampleRequest

Task = tuple[int, tuple[SampledWeights, SampleJob] | None]
"""To a sampling process: a job, under a number for its answer; None: it is cancelled."""


@dataclass
class Report:
    """From a sampling process: answers by the numbers of their jobs, None of one that was cancelled; seconds that it has computed so far,
    and the samplers that it holds ready."""

    answers: dict[int, bytes | Exception | None] = field(default_factory=dict)
    busy_s: float = 0.0
    samplers: int = 0


def run_worker(
    models: Mapping[str, ServedModel], limits: SamplingLimits, deterministic: bool, connection: Connection
) -> NoReturn:
    """Work until the service closes the connection."""
    keep_freed_memory()
    use_threads(1)
    pool = SamplerPool(models, limits, deterministic=deterministic)
    Worker(SamplingLoop(pool, threads=1), connection).run()


class Worker:
    """The loop of a sampling process."""

    def __init__(self, sampling: SamplingLoop, connection: Connection) -> None:
        self._sampling = sampling
        self._connection = connection
        self._inbox: SimpleQueue[list[Task]] = SimpleQueue()
        self._requests: dict[int, SampleRequest] = {}
        self._report = Report()

    def run(self) -> NoReturn:
        threading.Thread(target=self._receive, daemon=True).start()
        while True:
            while self._sampling.idle or not self._inbox.empty():
                for number, asked in self._inbox.get():
                    self._take(number, asked)
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

    def _take(self, number: int, asked: tuple[SampledWeights, SampleJob] | None) -> None:
        if asked is not None:
            weights, job = asked
            request = self._requests[number] = as_request(job, partial(self._answer, number))
            self._sampling.add(weights, request)
        elif number in self._requests:
            self._requests[number].cancelled.set()
            self._answer(number, None)

    def _answer(self, number: int, answer: bytes | Exception | None) -> None:
        if isinstance(answer, Exception) and not isinstance(answer, RequestError):
            answer = SamplingError(f"{type(answer).__name__}: {answer}")  # others may not be sent to another process
        if self._requests.pop(number, None) is not None:
            self._report.answers[number] = answer

    def _send(self) -> None:
        """Send the answers of this turn. Rows of cancelled jobs have left their batches by now."""
        if not self._report.answers:
            return
        self._report.samplers = len(self._sampling.pool)
        with contextlib.suppress(OSError):  # the service has gone, which the other thread finds out
            self._connection.send(self._report)
        self._report.answers = {}
