"""A sampling process: takes jobs from its connection, samples them in continuous batches on one thread, sends the answers back."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Mapping
from functools import partial
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import NoReturn

from rtl_core.localtinker import RequestError, SamplingError
from rtl_core.localtinker.devices import keep_freed_memory, use_threads
from rtl_core.localtinker.generation import SamplingLoop
from rtl_core.localtinker.models import ServedModel
from rtl_core.localtinker.samplers import SampledWeights, SamplerPool, SamplingLimits
from rtl_core.localtinker.sampling import SampleJob, SampleRequest

Task = tuple[int, tuple[SampledWeights, SampleJob] | None]
"""To a sampling process: a job, under a number for its answer; None: it is cancelled."""


Answers = dict[int, bytes | Exception | None]
"""From a sampling process: answers by the numbers of their jobs, None of one that was cancelled."""


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
        self._answers: Answers = {}

    def run(self) -> NoReturn:
        threading.Thread(target=self._receive, daemon=True).start()
        while True:
            while self._sampling.idle or not self._inbox.empty():
                for number, asked in self._inbox.get():
                    self._take(number, asked)
            self._sampling.advance()
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
            request = self._requests[number] = SampleRequest(**vars(job), take=partial(self._answer, number))
            self._sampling.add(weights, request)
        elif number in self._requests:
            self._requests[number].cancelled.set()
            self._answer(number, None)

    def _answer(self, number: int, answer: bytes | Exception | None) -> None:
        if isinstance(answer, Exception) and not isinstance(answer, RequestError):
            answer = SamplingError(f"{type(answer).__name__}: {answer}")  # others may not be sent to another process
        if self._requests.pop(number, None) is not None:
            self._answers[number] = answer

    def _send(self) -> None:
        """Send the answers of this turn. Rows of cancelled jobs have left their batches by now."""
        if self._answers:
            with contextlib.suppress(OSError):  # the service has gone, which the other thread finds out
                self._connection.send(self._answers)
            self._answers = {}
