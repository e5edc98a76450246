"""Where the conversations of a run go on: threads that wait for the model, and an executor of their own for the programs of episodes.

No sandbox in which a model's program ran ever judges an answer, so this executor is not the graders'.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, cast

from attrs import define

from rtl_core.config import RunConfig
from rtl_core.grading.executors.base import Executor, Job, JobResult
from rtl_core.run.graders import executor_of


class Cores:
    """An executor that runs as many jobs at once as there are cores: programs wait for one, and no episode for another episode."""

    def __init__(self, executor: Executor) -> None:
        self._executor, self._free = executor, threading.Semaphore(os.cpu_count() or 1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)

    def run(self, job: Job) -> JobResult:
        with self._free:
            return self._executor.run(job)


@define(eq=False)
class ConversationPool:
    """What conversations need beside a model."""

    threads: ThreadPoolExecutor
    """`evaluation.at_once` of them."""
    executor: Executor | None
    """Runs the programs of episodes; None where there are none."""


@asynccontextmanager
async def open_conversation_pool(config: RunConfig, with_tools: bool) -> AsyncIterator[ConversationPool]:
    """A pool; `with_tools`: for episodes. What runs there is ended with it."""
    threads = ThreadPoolExecutor(config.evaluation.at_once, thread_name_prefix="conversation")
    executor = None
    try:
        if with_tools:
            executor = cast(Executor, Cores(await asyncio.to_thread(executor_of, config)))
        yield ConversationPool(threads, executor)
    finally:
        if executor is not None:
            executor.close()
        # Not in the loop's own thread, on which they may wait.
        await asyncio.to_thread(threads.shutdown, cancel_futures=True)
