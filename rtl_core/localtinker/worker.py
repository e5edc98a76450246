"""A sampling process: takes jobs from its socket, samples them in continuous batches on one thread, sends the answers back."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rtl_core.localtinker import frames
from rtl_core.localtinker.errors import RequestError
from rtl_core.localtinker.generation import SamplerPool, SamplingLimits, SamplingLoop, Weights, as_request, use_threads
from rtl_core.localtinker.memory import keep_freed_memory
from rtl_core.localtinker.models import ServedModel
from rtl_core.localtinker.sampling import SampleJob, SampleRequest

_READ = 1 << 20


@dataclass(frozen=True)
class Task:
    """To a sampling process: a job, under a number for its answer."""

    number: int
    weights: Weights
    job: SampleJob


@dataclass(frozen=True)
class Cancel:
    """To a sampling process: drop the job of this number."""

    number: int


@dataclass(frozen=True)
class Answer:
    """From a sampling process: the serialised SampleResponse of a job; or why there is none, and whether the request is to
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
    models: Mapping[str, ServedModel], limits: SamplingLimits, deterministic: bool, sock: socket.socket
) -> None:
    """Work until the socket closes."""
    keep_freed_memory()
    use_threads(1)
    pool = SamplerPool(models, limits, deterministic=deterministic)
    Worker(SamplingLoop(pool, threads=1, cache_bytes=limits.cache_bytes), sock).run()


class Worker:
    """The loop of a sampling process."""

    def __init__(self, sampling: SamplingLoop, sock: socket.socket) -> None:
        self._sampling = sampling
        self._sock = sock
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._frames = frames.Frames()
        self._requests: dict[int, SampleRequest] = {}
        self._report = Report()

    def run(self) -> None:
        while self._receive():
            began = time.monotonic()
            self._sampling.advance()
            self._report.busy_s += time.monotonic() - began
            self._send()

    def _receive(self) -> bool:
        """Take what has come, and wait for something when there is nothing to do; False when the service has gone."""
        return (not self._sampling.idle and not self._poll.poll(0)) or self._read()

    def _read(self) -> bool:
        try:
            data = self._sock.recv(_READ)
        except ConnectionError:
            return False
        for message in self._frames.feed(data):
            self._take(message)
        return bool(data)

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
        data: Any = frames.encode(self._report)
        self._report.answers = []
        try:
            self._sock.sendall(data)
        except ConnectionError:
            return  # the next read finds the service gone
