"""What executors have in common: a job is tried again in another sandbox when one dies, and CPU time is counted."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from typing import Any

from rtl_core.grading.executors.base import ExecutorDiedError, Job, JobResult
from rtl_core.grading.executors.wire import job_result


class RetryingExecutor(ABC):
    """Runs jobs by `_serve`, up to `tries` times each."""

    tries: int

    def __init__(self) -> None:
        self.cpu_s = 0.0
        self._lock = threading.Lock()
        self._closed = False

    def run(self, job: Job) -> JobResult:
        """Runs one job. Raises InfrastructureError (or ExecutorDiedError) when nothing can be said of it."""
        for attempt in range(self.tries):
            last, started = attempt + 1 == self.tries, time.monotonic()
            try:
                # Whatever ended one sandbox may have ended those that wait as well.
                answer = self._serve(job, fresh=attempt > 0)
            except ExecutorDiedError:
                if last or self._closed:
                    raise
                continue
            result = job_result(answer, started, last=last)
            if result is not None:
                with self._lock:
                    self.cpu_s += result.cpu_s
                return result
        raise AssertionError("unreachable")

    @abstractmethod
    def _serve(self, job: Job, *, fresh: bool) -> dict[str, Any]:
        """An agent's answer to a job, from a new sandbox where `fresh`. Raises ExecutorDiedError when there is none."""
