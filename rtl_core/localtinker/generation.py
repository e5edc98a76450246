"""What waits to be sampled and what runs: continuous batches, one or more per set of weights.

The same loop runs in the sampling processes (`worker.py`) and, for models that need every thread or a GPU, on the service's
compute thread (`engine.py`).
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Callable

from rtl_core.localtinker.devices import use_threads
from rtl_core.localtinker.packing import common_length
from rtl_core.localtinker.samplers import SampledWeights, Sampler, SamplerPool
from rtl_core.localtinker.sampling import Batch, Row, SampleRequest, requests_of

logger = logging.getLogger(__name__)

MAX_ROWS = 256  # rows of one set of weights that run at once


class SamplingLoop:
    """Admits waiting jobs and advances what runs, a token at a time. Used by one thread, but for `rows`."""

    def __init__(self, pool: SamplerPool, *, threads: int) -> None:
        self.pool = pool
        self._threads = threads
        self._waiting: OrderedDict[SampledWeights, deque[Row]] = OrderedDict()
        self._batches: dict[SampledWeights, list[Batch]] = {}
        self._in_hand: list[Row] = []  # taken from the queue, not yet in a batch

    @property
    def idle(self) -> bool:
        return not (self._waiting or self._batches)

    def rows(self) -> tuple[int, int]:
        """How many rows wait, and how many run; may be asked from any thread."""
        waiting = sum(len(rows) for rows in list(self._waiting.values()))
        return waiting, sum(b.live for batches in list(self._batches.values()) for b in list(batches))

    def add(self, weights: SampledWeights, request: SampleRequest) -> None:
        self._waiting.setdefault(weights, deque()).extend(request.make_rows())

    def advance(self) -> bool:
        """Admit what waits and take one token in every running batch; False when there is nothing to sample."""
        for weights in list(self._waiting):
            self._guard(weights, self._admit)
        for weights in list(self._batches):
            self._guard(weights, self._step)
        return not self.idle

    def _guard(self, weights: SampledWeights, action: Callable[[SampledWeights], None]) -> None:
        """Run one sampling action; a failure is answered to every request of these weights, and only to them."""
        try:
            action(weights)
        except Exception as error:
            logger.exception("sampling from %s failed", weights)
            rows = [row for batch in self._batches.pop(weights, []) for row in batch.rows]
            rows += [*self._in_hand, *self._waiting.pop(weights, ())]
            self._in_hand = []
            for request in requests_of(rows):
                request.take(error)

    def _admit(self, weights: SampledWeights) -> None:
        waiting = deque(row for row in self._waiting[weights] if not row.request.cancelled.is_set())
        self._waiting[weights] = waiting
        if waiting:
            sampler = self.pool.get(weights, set(self._batches))
            running = self._batches.setdefault(weights, [])
            self._in_hand = self._take_fitting(weights, waiting, sampler)
            use_threads(self._threads)
            for batch, rows in sampler.place(self._in_hand, running):
                if batch not in running:
                    running.append(batch)
                batch.admit(rows)
            self._in_hand = []
        if not waiting:
            del self._waiting[weights]

    def _take_fitting(self, weights: SampledWeights, waiting: deque[Row], sampler: Sampler) -> list[Row]:
        """As many waiting rows, first come first, as the row and cache limits allow; at least one if nothing runs.

        No more prompts than one forward pass takes, so that what runs goes on and what is done is answered in between.
        """
        used = sum(b.positions() * b.decoder.position_bytes for batches in self._batches.values() for b in batches)
        live = sum(batch.live for batch in self._batches[weights])
        taken: list[Row] = []
        prompt_tokens = 0
        while waiting and live + len(taken) < MAX_ROWS:
            request = waiting[0].request
            used += (len(request.prompt) + request.options.max_tokens) * sampler.decoder.position_bytes
            if (live or taken) and used > self.pool.limits.cache_bytes:
                break
            prompt_tokens += len(request.prompt) - (_shared(taken[-1].request, request) if taken else 0)
            if taken and prompt_tokens > sampler.decoder.prefill_tokens:
                break
            taken.append(waiting.popleft())
        return taken

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
    """Prompt tokens that the pass of both requests computes once."""
    if request.prompt == before.prompt:
        return len(request.prompt)
    return 0 if before.goes_on or request.goes_on else common_length(before.prompt, request.prompt)
