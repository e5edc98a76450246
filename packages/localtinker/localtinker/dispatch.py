"""The service's side of the sampling processes: load balancing and recovery.

Everything here runs on the event loop. Jobs wait in one queue until a process has room, and go to the least
loaded one. A request for many samples is split over all processes. A process that dies is replaced and its
jobs are retried, with the same samples if the request has a seed. A job that was running in three processes
when they died is answered with an error.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import signal
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection

from localtinker.errors import SamplingError
from localtinker.generation import MAX_ROWS, Answers, Task, run_worker
from localtinker.models import ServedModel
from localtinker.samplers import SampledWeights, SamplingLimits
from localtinker.sampling import SampleJob, Take
from localtinker.template import Template

logger = logging.getLogger(__name__)

_MIN_PART_ROWS = 8  # samples in a part of a request
_PREFILL_DISCOUNT = 4  # a prompt token costs about a fourth of a sampled one
_DEATHS = 3  # process deaths after which a job is given up
# Idle processes delay a request to batch it with others: a client sends a batch as many requests, and
# decoding a few rows costs nearly as much as decoding many. They wait as long as requests arrive at
# intervals of at most _PACE_S seconds for each token of the answer, or _LONGEST_PACE_S; for at most _PACES
# intervals; and not at all where the interval is below _WORTH_S, as for scores.
_PACE_S, _LONGEST_PACE_S = 10e-6, 0.008
_PACES = 10
_WORTH_S = 0.001
_RESTART_DELAY_S = 0.5


@dataclass
class _Request:
    """A sampling request and the answers of its parts so far, by index."""

    parts: int
    take: Take
    answers: dict[int, bytes] = field(default_factory=dict)
    done: bool = False


@dataclass
class _Part:
    """The part of a request that one process computes."""

    request: _Request
    index: int
    weights: SampledWeights
    job: SampleJob
    deaths: int = 0

    @property
    def rows(self) -> int:
        return self.job.num_samples

    @property
    def cost(self) -> float:
        most_tokens = self.rows * self.job.options.max_tokens
        return len(self.job.prompt) / _PREFILL_DISCOUNT + most_tokens


@dataclass
class _Process:
    """A live sampling process and its jobs by number."""

    connection: Connection
    parts: dict[int, _Part] = field(default_factory=dict)
    outbox: list[Task] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts.values())

    @property
    def cost(self) -> float:
        return sum(part.cost for part in self.parts.values())

    def has_room(self, part: _Part) -> bool:
        return not self.parts or self.rows + part.rows <= MAX_ROWS

    def send(self) -> None:
        """Send the outbox, in one message, so that the process batches what is in it."""
        if self.outbox:
            with contextlib.suppress(OSError):  # it has died; `_read` notices
                self.connection.send(self.outbox)
            self.outbox = []

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self.connection.fileno())
        self.connection.close()


class SamplingProcesses:
    """`count` processes that sample `models`, each on one thread. Forks, so create it before the service
    starts any thread.

    The processes start with the first job. `limits` apply to all of them together.
    """

    def __init__(
        self,
        models: Mapping[str, ServedModel],
        count: int,
        limits: SamplingLimits,
        *,
        deterministic: bool,
    ) -> None:
        self._count = count
        run = partial(run_worker, models, limits.share(count), deterministic)
        self._template = Template(run)
        self._processes: list[_Process] = []
        self._queue: deque[_Part] = deque()
        self._numbers = itertools.count()
        self._started = self._stopped = False
        self._patience: tuple[asyncio.TimerHandle, float] | None = None
        """While dispatch is delayed: its timer, and the latest time at which it fires."""

    def sample(self, weights: SampledWeights, job: SampleJob, take: Take) -> Callable[[], None]:
        """Queue a sampling job and return a function that cancels it. A cancelled job gets no answer."""
        count = max(1, min(self._count, job.num_samples // _MIN_PART_ROWS))
        request = _Request(count, take)
        for index, part in enumerate(job.split(count)):
            self._queue.append(_Part(request, index, weights, part))
        if not self._started:
            self._started = True
            for _ in range(self._count):
                self._start_one()
        self._dispatch_or_delay(job)
        return partial(self._drop, request)

    def stop(self) -> None:
        """End all processes."""
        self._stopped = True
        for process in self._processes:
            process.close()
        self._template.close()

    def load(self) -> dict[str, int]:
        """Numbers of processes and of waiting and running rows, for the status page."""
        return {
            "sampling_processes": len(self._processes),
            "rows_waiting": sum(part.rows for part in self._queue),
            "rows_running": sum(process.rows for process in self._processes),
        }

    def _dispatch_or_delay(self, job: SampleJob) -> None:
        """Dispatch now, or a moment later where that gives larger batches."""
        pace = min(_PACE_S * job.options.max_tokens, _LONGEST_PACE_S)
        rows = sum(part.rows for part in self._queue)
        busy = any(process.parts for process in self._processes)
        if pace < _WORTH_S or busy or rows >= MAX_ROWS * self._count:
            self._dispatch()
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        latest = now + _PACES * pace
        if self._patience is not None:
            timer, latest = self._patience
            timer.cancel()
        timer = loop.call_at(min(now + pace, latest), self._dispatch)
        self._patience = timer, latest

    def _dispatch(self) -> None:
        """Send waiting parts in order, each to the least loaded process, while there is room."""
        if self._patience is not None:
            self._patience[0].cancel()
            self._patience = None
        while self._queue:
            part = self._queue[0]
            free = [process for process in self._processes if process.has_room(part)]
            if not free:
                break
            process = min(free, key=lambda process: process.cost)
            number = next(self._numbers)
            process.parts[number] = self._queue.popleft()
            process.outbox.append((number, part.weights, part.job))
        for process in self._processes:
            process.send()

    def _drop(self, request: _Request) -> None:
        """Remove the parts of a cancelled or failed request from the queue and the processes."""
        request.done = True
        self._queue = deque(part for part in self._queue if part.request is not request)
        for process in self._processes:
            for number, part in process.parts.items():
                if part.request is request:
                    process.outbox.append((number, part.weights, None))
            process.send()

    def _start_one(self) -> None:
        try:
            connection = self._template.fork()
        except OSError:
            if not self._stopped:
                logger.critical(
                    "cannot start a sampling process: template process %d has ended",
                    self._template.pid,
                )
                os.kill(os.getpid(), signal.SIGTERM)  # the supervisor restarts the service
            return
        process = _Process(connection)
        self._processes.append(process)
        asyncio.get_running_loop().add_reader(connection.fileno(), self._read, process)
        self._dispatch()

    def _read(self, process: _Process) -> None:
        """Receive answers, or notice that the process has died."""
        try:
            answers: Answers = process.connection.recv()
        except (EOFError, OSError):
            self._replace(process)
            return
        for number, answer in answers.items():
            part = process.parts.pop(number)
            if answer is not None:
                self._done(part, answer)
        self._dispatch()

    def _replace(self, process: _Process) -> None:
        """Requeue the jobs of a process that died, and start another one."""
        process.close()
        self._processes.remove(process)
        parts = [part for part in process.parts.values() if not part.request.done]
        logger.warning("a sampling process died; retrying %d jobs", len(parts))
        for part in parts:
            part.deaths += 1
            if part.deaths == _DEATHS:
                message = f"{_DEATHS} sampling processes died while working on this request"
                self._done(part, SamplingError(message))
        self._queue.extendleft(part for part in reversed(parts) if not part.request.done)
        self._dispatch()
        asyncio.get_running_loop().call_later(_RESTART_DELAY_S, self._start_one)

    def _done(self, part: _Part, answer: bytes | Exception) -> None:
        """Record the answer of a part. The last one completes the request; an error ends it."""
        request = part.request
        if request.done:
            return
        if isinstance(answer, Exception):
            self._drop(request)
            request.take(answer)
            return
        request.answers[part.index] = answer
        request.done = len(request.answers) == request.parts
        if request.done:
            # Concatenated protobuf messages parse as one message with all their repeated fields: the
            # sequences of all parts.
            parts = [request.answers[index] for index in range(request.parts)]
            request.take(b"".join(parts))
