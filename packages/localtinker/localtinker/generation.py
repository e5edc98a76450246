"""The sampling loop, with continuous batches per set of weights, and the process that runs it.

The same loop runs in the sampling processes and, for models that need all threads or a GPU, on the
service's compute thread (`engine.py`).
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from functools import partial
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import NoReturn

from localtinker.devices import use_threads
from localtinker.errors import RequestError, SamplingError
from localtinker.models import ServedModel
from localtinker.packing import common_length
from localtinker.samplers import SampledWeights, Sampler, SamplerPool, SamplingLimits
from localtinker.sampling import Batch, Row, SampleJob, SampleRequest, requests_of

logger = logging.getLogger(__name__)

MAX_ROWS = 256  # rows of one set of weights that run at once
Task = tuple[int, SampledWeights, SampleJob | None]
"""Message to a sampling process: the number of a job, its weights, and the job, or None to cancel it."""
Answers = dict[int, bytes | Exception | None]
"""Message from a sampling process: mapping of job number to answer, None for a cancelled job."""


class SamplingLoop:
    """Admits waiting jobs and advances the running batches token by token. Not thread-safe, except `rows`."""

    def __init__(self, pool: SamplerPool, *, threads: int) -> None:
        self.pool = pool
        self._threads = threads
        self._waiting: OrderedDict[SampledWeights, deque[Row]] = OrderedDict()
        self._batches: dict[SampledWeights, list[Batch]] = {}
        self._admitting: list[Row] = []  # taken from the queue, not yet in a batch

    @property
    def idle(self) -> bool:
        return not (self._waiting or self._batches)

    def rows(self) -> tuple[int, int]:
        """Return the numbers of waiting and running rows. Thread-safe."""
        waiting = sum(map(len, list(self._waiting.values())))
        batches = itertools.chain.from_iterable(list(self._batches.values()))
        return waiting, sum(batch.live for batch in list(batches))

    def add(self, weights: SampledWeights, request: SampleRequest) -> None:
        self._waiting.setdefault(weights, deque()).extend(request.make_rows())

    def advance(self) -> bool:
        """Admit waiting rows and sample one token in every running batch; False when there is nothing to sample."""
        for weights in list(self._waiting):
            self._guarded(self._admit, weights)
        for weights in list(self._batches):
            self._guarded(self._step, weights)
        return not self.idle

    def _guarded(
        self, action: Callable[[SampledWeights], None], weights: SampledWeights
    ) -> None:
        """Run an action; if it fails, every request of these weights is answered with the error."""
        try:
            action(weights)
        except Exception as error:
            logger.exception("sampling from %s failed", weights)
            rows = [*self._admitting, *self._waiting.pop(weights, ())]
            for batch in self._batches.pop(weights, []):
                rows += batch.rows
            self._admitting = []
            for request in requests_of(rows):
                request.take(error)

    def _admit(self, weights: SampledWeights) -> None:
        queue = self._waiting[weights]
        waiting = deque(row for row in queue if not row.request.cancelled)
        self._waiting[weights] = waiting
        if waiting:
            sampler = self.pool.get(weights, set(self._batches))
            running = self._batches.setdefault(weights, [])
            self._admitting = self._take_fitting(weights, waiting, sampler)
            use_threads(self._threads)
            for batch, rows in sampler.place(self._admitting, running):
                if batch not in running:
                    running.append(batch)
                batch.admit(rows)
            self._admitting = []
        if not waiting:
            del self._waiting[weights]

    def _take_fitting(
        self, weights: SampledWeights, waiting: deque[Row], sampler: Sampler
    ) -> list[Row]:
        """Dequeue as many waiting rows as the row and cache limits allow, at least one if nothing runs.

        Takes no more prompts than fit into one forward pass, so that running rows advance and finished ones
        are answered in between.
        """
        batches = itertools.chain.from_iterable(self._batches.values())
        used = sum(batch.positions() * batch.decoder.position_bytes for batch in batches)
        live = sum(batch.live for batch in self._batches[weights])
        rows: list[Row] = []
        prompt_tokens = 0
        while waiting and live + len(rows) < MAX_ROWS:
            request = waiting[0].request
            length = len(request.prompt) + request.options.max_tokens
            used += length * sampler.decoder.position_bytes
            if (live or rows) and used > self.pool.limits.cache_bytes:
                break
            prompt_tokens += len(request.prompt)
            if rows:
                prompt_tokens -= _shared(rows[-1].request, request)
                if prompt_tokens > sampler.decoder.prefill_tokens:
                    break
            rows.append(waiting.popleft())
        return rows

    def _step(self, weights: SampledWeights) -> None:
        batches = self._batches[weights]
        use_threads(1 if batches[0].decoder.is_small else self._threads)
        for batch in batches:
            if batch.live:
                batch.step()
        self._batches[weights] = [batch for batch in batches if batch.live]
        if not self._batches[weights]:
            del self._batches[weights]
            self.pool.trim(set(self._batches))


def _shared(before: SampleRequest, request: SampleRequest) -> int:
    """Number of prompt tokens that a pass over both requests computes only once."""
    if request.prompt == before.prompt:
        return len(request.prompt)
    if before.needs_cache or request.needs_cache:
        return 0
    return common_length(before.prompt, request.prompt)


def run_worker(
    models: Mapping[str, ServedModel],
    limits: SamplingLimits,
    deterministic: bool,
    connection: Connection,
) -> NoReturn:
    """Run a sampling process on one thread until the service closes the connection."""
    use_threads(1)
    pool = SamplerPool(models, limits, deterministic=deterministic)
    _Worker(SamplingLoop(pool, threads=1), connection).run()


class _Worker:
    """The main loop of a sampling process."""

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
                for task in self._inbox.get():
                    self._accept(*task)
            self._sampling.advance()
            if self._answers:
                # After an error the service has gone, and `_receive` ends this process.
                with contextlib.suppress(OSError):
                    self._connection.send(self._answers)
                self._answers = {}

    def _receive(self) -> NoReturn:
        """Fill the inbox, on a separate thread so that the service never waits for a step to end."""
        while True:
            try:
                self._inbox.put(self._connection.recv())
            except (EOFError, OSError):
                os._exit(0)  # the service has gone

    def _accept(self, number: int, weights: SampledWeights, job: SampleJob | None) -> None:
        if job is not None:
            request = SampleRequest(**vars(job), take=partial(self._answer, number))
            self._requests[number] = request
            self._sampling.add(weights, request)
        elif number in self._requests:
            self._requests[number].cancel()
            self._answer(number, None)

    def _answer(self, number: int, answer: bytes | Exception | None) -> None:
        if isinstance(answer, Exception) and not isinstance(answer, RequestError):
            # Other exceptions may not be picklable.
            answer = SamplingError(f"{type(answer).__name__}: {answer}")
        if self._requests.pop(number, None) is not None:
            self._answers[number] = answer
