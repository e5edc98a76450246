"""The service's compute thread and its queues.

It does two kinds of work. Calls (training passes, optimizer steps, saves) run in the order they arrive.
Samples of models without sampling processes (large models, and all models on a GPU) run in continuous
batches. When both wait, they alternate so that neither starves: one call, then a slice of sampling. No
request is rejected because of load; it waits in the queue.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from localtinker.devices import use_threads
from localtinker.generation import SamplingLoop
from localtinker.samplers import SampledWeights
from localtinker.sampling import SampleJob, SampleRequest, Take

logger = logging.getLogger(__name__)

# An idle engine delays its first request to batch it with others: as long as they arrive at intervals of at
# most _LINGER seconds, and for at most _LONGEST_LINGER seconds.
_LINGER = 0.001
_LONGEST_LINGER = 0.008
_SLICE = 0.05  # seconds of sampling between two calls


class Engine:
    """Owns the compute thread. `call`, `sample` and `stop` are thread-safe."""

    def __init__(self, sampling: SamplingLoop, *, threads: int) -> None:
        self._sampling = sampling
        self._threads = threads
        self._wake = threading.Condition()
        self._calls: deque[Callable[[], None]] = deque()
        self._incoming: deque[tuple[SampledWeights, SampleRequest]] = deque()
        self._stopping = False
        self._thread = threading.Thread(
            target=self._main, name="localtinker-compute", daemon=True
        )
        self._thread.start()

    def call(self, run: Callable[[], None]) -> None:
        """Queue `run`, which delivers its own result. An exception is logged."""
        with self._wake:
            self._calls.append(run)
            self._wake.notify()

    def sample(self, weights: SampledWeights, job: SampleJob, take: Take) -> Callable[[], None]:
        """Queue a sampling job and return a function that cancels it. A cancelled job gets no answer."""
        request = SampleRequest(**vars(job), take=take)
        with self._wake:
            self._incoming.append((weights, request))
            self._wake.notify()
        return request.cancel

    def stop(self) -> None:
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join(timeout=10)

    def load(self) -> dict[str, int]:
        """Numbers of waiting and running calls and rows, for the status page."""
        waiting, running = self._sampling.rows()
        return {
            "calls_waiting": len(self._calls),
            "rows_waiting": len(self._incoming) + waiting,
            "rows_running": running,
        }

    # The compute thread -------------------------------------------------------------------------
    def _main(self) -> None:
        while True:
            with self._wake:
                while not (
                    self._stopping or self._calls or self._incoming or not self._sampling.idle
                ):
                    self._wake.wait()
                if self._stopping:
                    return
                idle = self._sampling.idle and not self._calls
            if idle:
                self._linger()
            if self._calls:
                use_threads(self._threads)
                try:
                    self._calls.popleft()()
                except Exception:
                    logger.exception("housekeeping failed")
            deadline = time.monotonic() + _SLICE
            while self._advance_sampling() and not (
                self._calls and time.monotonic() > deadline
            ):
                if self._stopping:
                    return

    def _linger(self) -> None:
        deadline = time.monotonic() + _LONGEST_LINGER
        count = 0
        while len(self._incoming) > count and not self._calls and time.monotonic() < deadline:
            count = len(self._incoming)
            time.sleep(_LINGER)

    def _advance_sampling(self) -> bool:
        while self._incoming:
            self._sampling.add(*self._incoming.popleft())
        return self._sampling.advance()
