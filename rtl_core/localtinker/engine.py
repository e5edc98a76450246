"""The one thread that computes, and its queues.

Two kinds of work share it: calls (training passes, optimizer steps, saves) run one after the other in the order they
came; samples run in continuous batches, one per set of weights. When both wait they take turns, so that neither
starves: one call, then a slice of sampling. Overload queues; nothing is refused for being busy.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from rtl_core.localtinker.batching import GenerationBatch
from rtl_core.localtinker.decoder import DenseDecoder
from rtl_core.localtinker.sampling import Row, SampleRequest

logger = logging.getLogger(__name__)

SamplerKey = tuple[str, str | None]  # base model, checkpoint path or None for the base itself
_LINGER = 0.002  # seconds that the first request of an idle engine waits for companions
_SLICE = 0.05  # seconds of sampling between two calls
_MAX_ROWS = 256  # rows of one running batch
_SMALL_MODEL = 64 * 1024 * 1024  # below this many weight bytes a second thread costs decoding more than it gives


@dataclass
class _Call:
    run: Callable[[], None]


class DecoderPool:
    """Decoders of recently used samplers, bounded in bytes; the least recently used goes first.

    An evicted decoder is rebuilt from its frozen checkpoint, so that it gives the same log-probabilities again.
    """

    def __init__(self, build: Callable[[SamplerKey], DenseDecoder], budget_bytes: int) -> None:
        self._build = build
        self._budget = budget_bytes
        self._decoders: OrderedDict[SamplerKey, DenseDecoder] = OrderedDict()

    def get(self, key: SamplerKey) -> DenseDecoder:
        decoder = self._decoders.get(key)
        if decoder is None:
            decoder = self._decoders[key] = self._build(key)
            while len(self._decoders) > 1 and sum(d.nbytes_private() for d in self._decoders.values()) > self._budget:
                self._decoders.popitem(last=False)
        self._decoders.move_to_end(key)
        return decoder

    def forget(self, path: str) -> None:
        for key in [k for k in self._decoders if k[1] == path]:
            del self._decoders[key]


class Engine:
    """Owns the compute thread. `call` and `sample` may be used from any thread."""

    def __init__(
        self,
        pool: DecoderPool,
        decode: Callable[[str], Callable[[Sequence[int]], str]],
        *,
        threads: int,
        deterministic: bool,
        cache_bytes: int,
    ) -> None:
        self._pool = pool
        self._decode = decode
        self._threads = threads
        self._deterministic = deterministic
        self._cache_bytes = cache_bytes
        self._wake = threading.Condition()
        self._calls: deque[_Call] = deque()
        self._waiting: OrderedDict[SamplerKey, deque[SampleRequest]] = OrderedDict()
        self._batches: dict[SamplerKey, list[GenerationBatch]] = {}
        self._spare_rows: dict[SamplerKey, deque[Row]] = {}
        self._stopping = False
        self._thread = threading.Thread(target=self._main, name="localtinker-compute", daemon=True)
        self._thread.start()

    def call(self, run: Callable[[], None]) -> None:
        """Queue `run`; it must deliver its own result and not raise."""
        with self._wake:
            self._calls.append(_Call(run))
            self._wake.notify()

    def sample(self, key: SamplerKey, request: SampleRequest) -> None:
        """Queue a sampling request for the weights `key`."""
        with self._wake:
            self._waiting.setdefault(key, deque()).append(request)
            self._wake.notify()

    def stop(self) -> None:
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join(timeout=10)

    # The compute thread ------------------------------------------------------------------------------------------
    def _main(self) -> None:
        torch.set_num_threads(self._threads)
        while True:
            with self._wake:
                while not (self._stopping or self._calls or self._waiting or self._batches or self._spare_rows):
                    self._wake.wait()
                if self._stopping:
                    return
                idle = not self._batches and not self._calls
            if idle:
                time.sleep(_LINGER)
            self._run_call()
            deadline = time.monotonic() + _SLICE
            while self._advance_sampling() and not (self._calls and time.monotonic() > deadline):
                pass

    def _run_call(self) -> None:
        with self._wake:
            call = self._calls.popleft() if self._calls else None
        if call is not None:
            self._use_threads(self._threads)
            call.run()

    def _advance_sampling(self) -> bool:
        """Admit what waits and take one token in every running batch; False when there is nothing to sample."""
        with self._wake:
            waiting, self._waiting = self._waiting, OrderedDict()
        for key, requests in waiting.items():
            rows = self._spare_rows.setdefault(key, deque())
            for request in requests:
                if not request.cancelled.is_set():
                    rows.extend(request.make_rows())
        for key in list(self._spare_rows):
            self._guard(key, self._admit)
        for key in list(self._batches):
            self._guard(key, self._step)
        return bool(self._batches or self._spare_rows)

    def _guard(self, key: SamplerKey, action: Callable[[SamplerKey], None]) -> None:
        """Run one sampling action; a failure is answered to every request of these weights, and only to them."""
        try:
            action(key)
        except Exception as error:
            logger.exception("sampling from %s failed", key)
            rows = [r for batch in self._batches.pop(key, []) for r in batch.rows] + list(self._spare_rows.pop(key, []))
            for request in {id(row.request): row.request for row in rows}.values():
                request.fail(error)

    def _admit(self, key: SamplerKey) -> None:
        spare = self._spare_rows[key]
        while spare and spare[0].request.cancelled.is_set():
            spare.popleft()
        if not spare:
            del self._spare_rows[key]
            return
        decoder = self._pool.get(key)
        self._use_threads(self._threads)
        batches = self._batches.setdefault(key, [])
        if self._deterministic:
            # One row a batch: its sequence of shapes, and so of roundings, depends on its own prompt alone.
            for row in spare:
                batch = GenerationBatch(decoder, self._decode(key[0]))
                batches.append(batch)
                batch.admit([row])
            spare.clear()
        else:
            if not batches:
                batches.append(GenerationBatch(decoder, self._decode(key[0])))
            batches[0].admit(self._fitting(batches[0], spare, decoder))
        if not spare:
            del self._spare_rows[key]

    def _fitting(self, batch: GenerationBatch, spare: deque[Row], decoder: DenseDecoder) -> list[Row]:
        """As many waiting rows, first come first, as the row and cache limits allow; at least one into an empty batch."""
        element = 2 if decoder.dtype in (torch.bfloat16, torch.float16) else 4
        position_bytes = 2 * len(decoder.layers) * decoder.kv_heads * decoder.head_dim * element
        room = self._cache_bytes // position_bytes
        taken: list[Row] = []
        while spare and batch.live + len(taken) < _MAX_ROWS:
            if (batch.live or taken) and batch.cost([*taken, spare[0]]) > room:
                break
            taken.append(spare.popleft())
        return taken

    def _step(self, key: SamplerKey) -> None:
        batches = self._batches[key]
        small = batches and batches[0].decoder.weight_bytes < _SMALL_MODEL and batches[0].decoder.device.type == "cpu"
        self._use_threads(1 if small else self._threads)
        for batch in batches:
            if batch.live:
                batch.step()
        self._batches[key] = [batch for batch in batches if batch.live]
        if not self._batches[key]:
            del self._batches[key]

    def _use_threads(self, count: int) -> None:
        if torch.get_num_threads() != count:
            torch.set_num_threads(count)
