"""What is worth trying again, and how the tasks of this project are made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tinker
from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.tasks import exponential_backoff

from rtl_core.errors import InfrastructureError

TRANSIENT: tuple[type[BaseException], ...] = (
    InfrastructureError,
    ConnectionError,
    tinker.APIConnectionError,
    tinker.APITimeoutError,
    tinker.RateLimitError,
    tinker.InternalServerError,
)
"""Errors that time can mend. Everything else (a bad configuration, a refused model, a bug) fails at once."""


async def is_transient(_task: Any, _task_run: Any, state: Any) -> bool:
    """Prefect's retry condition: whether the error of a failed state is one of `TRANSIENT`."""
    try:
        await state.aresult()
    except TRANSIENT:
        return True
    except BaseException:
        return False
    return False


def step_task(name: str, run_name: str, retries: int = 4) -> Callable[[Any], Any]:
    """Decorator for a task of the training loop: retried on transient errors with growing, jittered pauses, never cached.

    Verdicts and rollouts have their own store, so Prefect keeps no results; a Prefect timeout could not stop a simulator or
    a paid call, so there is none.
    """
    return task(
        name=name,
        task_run_name=run_name,
        retries=retries,
        retry_delay_seconds=exponential_backoff(backoff_factor=2),
        retry_jitter_factor=0.5,
        retry_condition_fn=is_transient,
        cache_policy=NO_CACHE,
        persist_result=False,
    )
