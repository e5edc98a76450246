"""The one thread that computes, and its queues.

Two kinds of work share it: calls (training passes, optimizer steps, saves) run one after the other in the order they
came; samples run in continuous batches, one or more per set of weights. When both wait they take turns, so that
neither starves: one call, then a slice of sampling. Overload queues; nothing is refused for being busy.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable

import torch

from rtl_core.localtinker.samplers import Batch, Sampler
from rtl_core.localtinker.sampling import Row, SampleRequest

logger = logging.getLogger(__name__)

SamplerKey = tuple[str, str | None]  # base model, checkpoint path or None for the base itself
_LINGER = 0.001  # an idle engine waits for companions of its first request while they come at this pace, in seconds,
_LONGEST_LINGER = 0.008  # but no longer than this
_SLICE = 0.05  # seconds of sampling between two calls
_MAX_ROWS = 256  # rows of one set of weights that run at once


class SamplerPool:
    """Recently used samplers, bounded in number and bytes; the least recently used goes first.

    An evicted sampler is rebuilt from its frozen checkpoint, so that it gives the same log-probabilities again.
    """

    def __init__(self, build: Callable[[SamplerKey], Sampler], *, limit: int, budget_bytes: int) -> None:
        self._build = build
        self._limit = limit
        self._budget = budget_bytes
        self._samplers: OrderedDict[SamplerKey, Sampler] = OrderedDict()
        self._retired: list[Sampler] = []

    def __len__(self) -> int:
        return len(self._samplers)

    def get(self, key: SamplerKey, in_use: set[SamplerKey]) -> Sampler:
        """The sampler of `key`; those `in_use` by running batches are not evicted."""
        if key not in self._samplers:
            self._samplers[key] = self._build(key)
            for old in [k for k in self._samplers if k != key and k not in in_use]:
                if len(self._samplers) <= self._limit and self._bytes() <= self._budget:
                    break
                self._samplers.pop(old).release()
        self._samplers.move_to_end(key)
        return self._samplers[key]

    def _bytes(self) -> int:
        return sum(sampler.private_bytes for sampler in self._samplers.values())

    def forget(self, path: str) -> None:
        """Drop the sampler of a checkpoint that was overwritten; rows that run on it may finish first."""
        self._retired += [self._samplers.pop(key) for key in list(self._samplers) if key[1] == path]

    def release_retired(self) -> None:
        """Free dropped samplers; called when nothing runs."""
        while self._retired:
            self._retired.pop().release()


class Engine:
    """Owns the compute thread. `call`, `sample` and `stop` may be used from any thread."""

    def __init__(self, pool: SamplerPool, *, threads: int, cache_bytes: int) -> None:
        self._pool = pool
        self._threads = threads
        self._cache_bytes = cache_bytes
        self._wake = threading.Condition()
        self._calls: deque[Callable[[], None]] = deque()
        self._incoming: deque[tuple[SamplerKey, SampleRequest]] = deque()
        self._waiting: OrderedDict[SamplerKey, deque[Row]] = OrderedDict()
        self._batches: dict[SamplerKey, list[Batch]] = {}
        self._samplers: dict[SamplerKey, Sampler] = {}
        self._in_hand: list[Row] = []  # taken from the queue, not yet in a batch
        self._busy_s = 0.0
        self._stopping = False
        self._thread = threading.Thread(target=self._main, name="localtinker-compute", daemon=True)
        self._thread.start()

    def call(self, run: Callable[[], None]) -> None:
        """Queue `run`; it must deliver its own result and not raise."""
        with self._wake:
            self._calls.append(run)
            self._wake.notify()

    def sample(self, key: SamplerKey, request: SampleRequest) -> None:
        """Queue a sampling request for the weights `key`."""
        with self._wake:
            self._incoming.append((key, request))
            self._wake.notify()

    def stop(self) -> None:
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join(timeout=10)

    def load(self) -> dict[str, float]:
        """What waits and runs, and for how many seconds the thread has computed so far, for the status page."""
        return {
            "busy_s": self._busy_s,
            "calls_waiting": len(self._calls),
            "rows_waiting": len(self._incoming) + sum(len(rows) for rows in list(self._waiting.values())),
            "rows_running": sum(batch.live for batches in list(self._batches.values()) for batch in list(batches)),
            "samplers": len(self._pool),
        }

    # The compute thread ------------------------------------------------------------------------------------------
    def _main(self) -> None:
        while True:
            with self._wake:
                while not (self._stopping or self._calls or self._incoming or self._waiting or self._batches):
                    self._wake.wait()
                if self._stopping:
                    return
                idle = not (self._batches or self._waiting or self._calls)
            if idle:
                self._linger()
            began = time.monotonic()
            self._run_call()
            deadline = time.monotonic() + _SLICE
            while self._advance_sampling() and not (self._calls and time.monotonic() > deadline):
                if self._stopping:
                    return
            self._busy_s += time.monotonic() - began

    def _linger(self) -> None:
        began = time.monotonic()
        seen = 0
        while len(self._incoming) > seen and not self._calls and time.monotonic() - began < _LONGEST_LINGER:
            seen = len(self._incoming)
            time.sleep(_LINGER)

    def _run_call(self) -> None:
        with self._wake:
            call = self._calls.popleft() if self._calls else None
        if call is not None:
            _use_threads(self._threads)
            call()

    def _advance_sampling(self) -> bool:
        """Admit what waits and take one token in every running batch; False when there is nothing to sample."""
        with self._wake:
            incoming, self._incoming = self._incoming, deque()
        for key, request in incoming:
            self._waiting.setdefault(key, deque()).extend(request.make_rows())
        for key in list(self._waiting):
            self._guard(key, self._admit)
        for key in list(self._batches):
            self._guard(key, self._step)
        if not self._batches:
            self._pool.release_retired()
        return bool(self._batches or self._waiting)

    def _guard(self, key: SamplerKey, action: Callable[[SamplerKey], None]) -> None:
        """Run one sampling action; a failure is answered to every request of these weights, and only to them."""
        try:
            action(key)
        except Exception as error:
            logger.exception("sampling from %s failed", key)
            rows = [row for batch in self._batches.pop(key, []) for row in batch.rows]
            rows += [*self._in_hand, *self._waiting.pop(key, ())]
            self._in_hand = []
            for request in {id(row.request): row.request for row in rows}.values():
                request.fail(error)

    def _admit(self, key: SamplerKey) -> None:
        waiting = deque(row for row in self._waiting[key] if not row.request.cancelled.is_set())
        self._waiting[key] = waiting
        if waiting:
            sampler = self._samplers[key] = self._pool.get(key, set(self._batches))
            _use_threads(self._threads)
            running = self._batches.setdefault(key, [])
            self._in_hand = self._take_fitting(key, waiting, sampler)
            for batch, rows in sampler.place(self._in_hand, running):
                if batch not in running:
                    running.append(batch)
                batch.admit(rows)
            self._in_hand = []
        if not waiting:
            del self._waiting[key]

    def _take_fitting(self, key: SamplerKey, waiting: deque[Row], sampler: Sampler) -> list[Row]:
        """As many waiting rows, first come first, as the row and cache limits allow; at least one if nothing runs."""
        used = sum(b.positions() * self._samplers[k].position_bytes for k, bs in self._batches.items() for b in bs)
        live = sum(batch.live for batch in self._batches[key])
        taken: list[Row] = []
        while waiting and live + len(taken) < _MAX_ROWS:
            request = waiting[0].request
            used += (len(request.prompt) + request.options.max_tokens) * sampler.position_bytes
            if (live or taken) and used > self._cache_bytes:
                break
            taken.append(waiting.popleft())
        return taken

    def _step(self, key: SamplerKey) -> None:
        _use_threads(1 if self._samplers[key].one_thread else self._threads)
        batches = self._batches[key]
        for batch in batches:
            if batch.live:
                batch.step()
        self._batches[key] = [batch for batch in batches if batch.live]
        if not self._batches[key]:
            del self._batches[key], self._samplers[key]


def _use_threads(count: int) -> None:
    if torch.get_num_threads() != count:
        torch.set_num_threads(count)
