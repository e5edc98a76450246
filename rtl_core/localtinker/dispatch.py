"""The sampling processes, seen from the service: which gets which job, and what happens when one dies.

Everything here runs on the event loop. A job waits in one queue until a process has room and goes to the one that has least to
do; a request for many samples is split, so that all processes work on it. A process that dies is started again, and what it was
at work on is done again: the same samples where the request has a seed. A job that was at work in three processes that died is
answered with an error.
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

from rtl_core.localtinker import SamplingError
from rtl_core.localtinker.generation import MAX_ROWS
from rtl_core.localtinker.models import ServedModel
from rtl_core.localtinker.samplers import SampledWeights, SamplingLimits
from rtl_core.localtinker.sampling import SampleJob, Take
from rtl_core.localtinker.template import Template
from rtl_core.localtinker.worker import Answers, Task, run_worker

logger = logging.getLogger(__name__)

_ROWS_OF_A_PART = 8  # least samples of a part of a request
_PREFILL_DISCOUNT = 4  # a prompt's token costs about so much less than a sampled one
_DEATHS = 3  # processes that may die at work on a job before it is given up
# Idle processes wait for companions of a request, since a client sends a batch as many requests, and decoding few rows costs
# nearly as much as decoding many. They wait while requests come at this pace, in seconds a token of their longest answer:
_PACE_S, _LONGEST_PACE_S = 10e-6, 0.008  # at most
_PACES = 10  # and no longer than this number of paces together
_WORTH_S = 0.001  # and not at all for less than this, as for scores
_PAUSE_S = 0.5  # before a process that died is started again


@dataclass
class _Whole:
    """One sampling request: its parts' answers, in order, and where they go together."""

    answers: dict[int, bytes]
    parts: int
    take: Take
    over: bool = False

    def part_done(self, index: int, answer: bytes | Exception) -> None:
        """Of a part that has no answer, the whole has none."""
        if self.over:
            return
        if isinstance(answer, bytes):
            self.answers[index] = answer
            self.over = len(self.answers) == self.parts
            if self.over:
                # Serialised protobuf messages joined are the message of all their repeated fields: the sequences of all parts.
                self.take(b"".join(self.answers[index] for index in range(self.parts)))
        else:
            self.over = True
            self.take(answer)


@dataclass
class _Part:
    """A part of a request: as many of its samples as one process takes."""

    whole: _Whole
    index: int
    weights: SampledWeights
    job: SampleJob
    deaths: int = 0

    @property
    def cost(self) -> float:
        job = self.job
        return len(job.prompt) / _PREFILL_DISCOUNT + job.num_samples * job.options.max_tokens


@dataclass
class _Process:
    """One living sampling process and what it is at work on."""

    connection: Connection
    parts: dict[int, _Part] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(part.job.num_samples for part in self.parts.values())

    @property
    def cost(self) -> float:
        return sum(part.cost for part in self.parts.values())

    def has_room(self, part: _Part) -> bool:
        return not self.parts or self.rows + part.job.num_samples <= MAX_ROWS

    def send(self, tasks: list[Task]) -> None:
        with contextlib.suppress(OSError):  # it has died, which reading from it will tell
            self.connection.send(tasks)


class SamplingProcesses:
    """`count` processes that sample `models`, each on one thread. Made before the service starts any thread: it forks.

    The processes start with the first job. `limits` are for all of them together.
    """

    def __init__(
        self, models: Mapping[str, ServedModel], count: int, limits: SamplingLimits, *, deterministic: bool
    ) -> None:
        self._count = count
        self._template = Template(partial(run_worker, models, limits.share(count), deterministic))
        self._processes: list[_Process] = []
        self._queue: deque[_Part] = deque()
        self._numbers = itertools.count()
        self._started = self._stopped = False
        self._patience: tuple[asyncio.TimerHandle, float] | None = None
        """While processes wait for companions of a request: the timer, and until when they wait at the latest."""

    def sample(self, weights: SampledWeights, job: SampleJob, take: Take) -> Callable[[], None]:
        """Queue a sampling job; returns what cancels it. A cancelled job is not answered."""
        parts = job.split(max(1, min(self._count, job.num_samples // _ROWS_OF_A_PART)))
        whole = _Whole({}, len(parts), take)
        self._queue.extend(_Part(whole, index, weights, part) for index, part in enumerate(parts))
        if not self._started:
            self._started = True
            for _ in range(self._count):
                self._start_one()
        self._wait_for_companions(job)
        return partial(self._cancel, whole)

    def stop(self) -> None:
        """End all processes."""
        self._stopped = True
        for process in self._processes:
            asyncio.get_running_loop().remove_reader(process.connection.fileno())
            process.connection.close()
        self._template.close()

    def load(self) -> dict[str, int]:
        """What waits and runs, for the status page."""
        return {
            "sampling_processes": len(self._processes),
            "rows_waiting": sum(part.job.num_samples for part in self._queue),
            "rows_running": sum(process.rows for process in self._processes),
        }

    def _wait_for_companions(self, job: SampleJob) -> None:
        """Dispatch now, or, where that makes better batches, in a moment."""
        pace = min(_PACE_S * job.options.max_tokens, _LONGEST_PACE_S)
        rows = sum(part.job.num_samples for part in self._queue)
        busy = any(process.parts for process in self._processes)
        if pace < _WORTH_S or busy or rows >= MAX_ROWS * self._count:
            self._dispatch()
            return
        loop = asyncio.get_running_loop()
        latest = loop.time() + _PACES * pace
        if self._patience is not None:
            timer, latest = self._patience
            timer.cancel()
        self._patience = loop.call_at(min(loop.time() + pace, latest), self._dispatch), latest

    def _dispatch(self) -> None:
        """Send waiting parts, first come first, each to the process with least to do, while there is room."""
        if self._patience is not None:
            self._patience[0].cancel()
            self._patience = None
        outgoing: dict[int, list[Task]] = {index: [] for index in range(len(self._processes))}
        while self._queue:
            part = self._queue[0]
            free = [index for index, process in enumerate(self._processes) if process.has_room(part)]
            if not free:
                break
            self._queue.popleft()
            chosen, number = min(free, key=lambda index: self._processes[index].cost), next(self._numbers)
            self._processes[chosen].parts[number] = part
            outgoing[chosen].append((number, (part.weights, part.job)))
        for index, tasks in outgoing.items():  # together, so that a process finds them all at once
            if tasks:
                self._processes[index].send(tasks)

    def _cancel(self, whole: _Whole) -> None:
        whole.over = True
        self._drop(whole)

    def _drop(self, whole: _Whole) -> None:
        """Take the parts of a request that is over from the queue and from the processes."""
        self._queue = deque(part for part in self._queue if part.whole is not whole)
        for process in self._processes:
            if numbers := [number for number, part in process.parts.items() if part.whole is whole]:
                process.send([(number, None) for number in numbers])

    def _start_one(self) -> None:
        try:
            connection = self._template.fork()
        except OSError:
            if not self._stopped:
                logger.critical("no sampling process can be started any more: process %d has ended", self._template.pid)
                os.kill(os.getpid(), signal.SIGTERM)  # whoever keeps the service running starts it again
            return
        process = _Process(connection)
        self._processes.append(process)
        asyncio.get_running_loop().add_reader(connection.fileno(), self._read, process)
        self._dispatch()

    def _read(self, process: _Process) -> None:
        """Take answers that have come, or the news that the process has died."""
        try:
            answers: Answers = process.connection.recv()
        except (EOFError, OSError):
            self._bury(process)
            return
        for number, answer in answers.items():
            part = process.parts.pop(number)
            if answer is not None:
                self._done(part, answer)
        self._dispatch()

    def _bury(self, process: _Process) -> None:
        """Queue again what a process was at work on when it died, and start another one."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(process.connection.fileno())
        process.connection.close()
        self._processes.remove(process)
        parts = [part for part in process.parts.values() if not part.whole.over]
        logger.warning("a sampling process died; %d jobs are done again", len(parts))
        for part in parts:
            part.deaths += 1
            if part.deaths == _DEATHS:
                self._done(part, SamplingError(f"{_DEATHS} sampling processes died at work on this request"))
        self._queue.extendleft(part for part in reversed(parts) if not part.whole.over)
        self._dispatch()
        loop.call_later(_PAUSE_S, self._start_one)

    def _done(self, part: _Part, answer: bytes | Exception) -> None:
        part.whole.part_done(part.index, answer)
        if isinstance(answer, Exception):
            self._drop(part.whole)
