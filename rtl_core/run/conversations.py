"""The threads of a run's conversations, and the executor of their programs."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

from attrs import define

from rtl_core.config import RunConfig
from rtl_core.episodes.endpoint import Endpoint
from rtl_grader.grading.executors import Executor
from rtl_grader.grading.executors.base import Job, JobResult
from rtl_grader.settings import executor_of

Result = TypeVar("Result")


class OneJobPerCore:
    """An executor that runs at most as many jobs at a time as there are cores, so that programs wait but
    episodes do not."""

    def __init__(self, executor: Executor) -> None:
        self._executor, self._free = executor, threading.Semaphore(os.cpu_count() or 1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)

    def run(self, job: Job) -> JobResult:
        with self._free:
            return self._executor.run(job)


async def in_daemon_thread(function: Callable[[], Result]) -> Result:
    """Return the result of a function that runs in a thread of its own, which delays neither a cancellation
    nor the end of the process."""
    future: Future[Result] = Future()
    future.set_running_or_notify_cancel()  # a thread cannot be cancelled

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return await asyncio.wrap_future(future)


@define(eq=False)
class ConversationPool:
    """Threads and executor of a run's conversations."""

    free: asyncio.Semaphore
    """Counts the conversations that may still begin, of `evaluation.at_once`."""
    executor: Executor | None
    """Runs the programs of episodes. Never the graders' executor: no sandbox that ran a model's program
    judges an answer."""
    endpoint: Endpoint | None = None
    """The model whose answers the student imitates (`learning.warm_start_model`)."""

    async def run(self, conversation: Callable[[], Result]) -> Result:
        """Run a conversation in a daemon thread: it may wait for an endpoint for minutes."""
        async with self.free:
            return await in_daemon_thread(conversation)


def endpoint_of(config: RunConfig) -> Endpoint | None:
    """Return the model behind an endpoint whose answers a run imitates, if it does."""
    learning = config.learning
    if not learning.imitates_endpoint:
        return None
    return Endpoint(
        str(learning.warm_start_endpoint),
        str(learning.warm_start_model),
        config.sampling.temperature,
        top_p=1.0,
        reply_tokens=config.endpoint_limit,
    )


@asynccontextmanager
async def open_conversation_pool(
    config: RunConfig, with_tools: bool
) -> AsyncIterator[ConversationPool]:
    """Open a pool; `with_tools`: with an executor for episodes. Its jobs end when the pool is closed."""
    executor = None
    try:
        if with_tools:
            programs = await asyncio.to_thread(executor_of, config.grading)
            executor = cast(Executor, OneJobPerCore(programs))
        free = asyncio.Semaphore(config.evaluation.at_once)
        yield ConversationPool(free, executor, endpoint_of(config))
    finally:
        if executor is not None:
            executor.close()
