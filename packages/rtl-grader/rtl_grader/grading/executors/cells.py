"""The common base of the executors: a pool of sandboxes that serve one job at a time, with retries if one dies.

A *cell* is a sandbox with the agent (`packages/rtl-grader/rtl_grader/grading/inside/agent.py`) inside. The
agent isolates the mounts, IPC, processes and workspace of each job within the cell, so that nothing of a
job outlives it.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Hashable
from itertools import chain
from multiprocessing.connection import Connection
from typing import Self

from rtl_grader.errors import InfrastructureError
from rtl_grader.grading.executors.base import (
    Executor,
    ExecutorDiedError,
    Job,
    JobResult,
    Message,
)
from rtl_grader.grading.executors.toolchain import Toolchain
from rtl_grader.grading.executors.wire import ask, job_message, job_result, patience

_CAPABILITIES = "SYS_ADMIN SETUID SETGID CHOWN DAC_OVERRIDE FOWNER KILL SYS_PTRACE"
CAPABILITIES = tuple(_CAPABILITIES.split())
"""Capabilities of an agent that is root: to mount, watch its jobs, and drop privileges before code of a job runs."""


class Cell(ABC):
    """One sandbox."""

    kind: Hashable
    """Cells of equal kind are interchangeable."""
    agent: Connection
    """Our end of the agent's socket."""

    @property
    def alive(self) -> bool:
        """Whether the agent is idle; between jobs only the end of its socket can be read."""
        return not self.agent.poll(0)

    @abstractmethod
    def kill(self) -> None:
        """End the sandbox while another thread waits for its answer; that thread closes it."""

    @abstractmethod
    def close(self) -> None:
        """End the sandbox and remove everything it left."""


class CellExecutor(Executor, ABC):
    """Runs jobs in cells, up to `tries` times each, with the tools of a `toolchain`. Thread-safe.

    It keeps one cell per concurrent job. If no idle cell has the right kind, one of another kind is replaced.
    """

    tries: int
    toolchain: Toolchain

    def __init__(self) -> None:
        self.cpu_s = 0.0
        self._lock = threading.Lock()
        self._closed = False
        self._free: list[Cell] = []
        self._busy: set[Cell] = set()

    def run(self, job: Job) -> JobResult:
        for attempt in range(self.tries):
            is_last = attempt + 1 == self.tries
            start = time.monotonic()
            try:
                # What ended one sandbox may have ended the idle ones, too, so retries use a new one.
                answer = self._serve(job, fresh=attempt > 0)
            except ExecutorDiedError:
                if is_last or self._closed:
                    raise
                continue
            result = job_result(answer, start, last=is_last)
            if result is not None:
                with self._lock:
                    self.cpu_s += result.cpu_s
                return result
        raise AssertionError("unreachable")

    def tools(self) -> dict[str, str]:
        return dict(self.toolchain.tools)

    def has_module(self, name: str) -> bool:
        return self.toolchain.has_module(name)

    def close(self) -> None:
        """See the protocol. Running jobs raise ExecutorDiedError."""
        with self._lock:
            self._closed = True
            free = self._free
            self._free = []
            busy = list(self._busy)
        for cell in busy:
            cell.kill()
        for cell in free:
            cell.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @abstractmethod
    def _start(self, kind: Hashable) -> Cell:
        """Start a new cell. Raises InfrastructureError if this fails."""

    def _kind_of(self, job: Job) -> Hashable:
        """The kind of cell that a job needs."""
        return None

    def _last_words(self, cell: Cell, job: Job, start: float) -> Message | None:
        """The answer to a job, begun at `start` (monotonic), whose cell died; None if the cause is unknown."""
        return None

    def _serve(self, job: Job, *, fresh: bool) -> Message:
        """Return an agent's answer, with `fresh` from a new cell. Raises ExecutorDiedError if there is none."""
        cell = self._take(self._kind_of(job), fresh=fresh)
        start = time.monotonic()
        reusable = False
        try:
            answer = ask(cell.agent, job_message(job, self.toolchain), patience(job))
            # A cell that ran out of memory may have lost more than the job's own processes.
            overruns = [step["overrun"] for step in answer.get("steps", ())]
            reusable = "error" not in answer and "memory" not in overruns
            return answer
        except ExecutorDiedError:
            last_words = self._last_words(cell, job, start)
            if last_words is None:
                raise
            return last_words
        finally:
            with self._lock:
                self._busy.discard(cell)
                reusable = reusable and not self._closed
                if reusable:
                    self._free.append(cell)
            if not reusable:
                cell.close()

    def _take(self, kind: Hashable, *, fresh: bool) -> Cell:
        """Return an idle cell of this kind, else a new one, and mark it as busy."""
        with self._lock:
            fitting = [cell for cell in reversed(self._free) if cell.kind == kind and not fresh]
            cell = next(chain(fitting, self._free), None)
            if cell is not None:
                self._free.remove(cell)
        if cell is None or fresh or cell.kind != kind or not cell.alive:
            if cell is not None:
                cell.close()
            if self._closed:
                raise InfrastructureError("the executor was closed")
            cell = self._start(kind)
        with self._lock:
            if not self._closed:
                self._busy.add(cell)
                return cell
        cell.close()
        raise ExecutorDiedError("the executor was closed")
