"""The tasks of flows: each is a function of the library with a name and retries of transient errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.runtime import task_run

from rtl_core.at_work import steps_at_work
from rtl_core.errors import UserError
from rtl_core.rollouts import batch, planning, playing, scoring, training
from rtl_core.rollouts.regrading import Regrading
from rtl_core.rollouts.survey import Survey
from rtl_core.run.stopping import is_transient
from rtl_grader.progress import log_line

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Step = Callable[Parameters, Awaitable[Result]]

# Seconds between attempts, in addition to the SDK's own retries over minutes: a quarter of an hour in all.
# After that the run stops as interrupted and is restarted (see flows/resume.py).
PAUSES_S = (2, 5, 10, 30, 60, 120, 300, 300)
LOGGED_FROM_S = 10
"""Pauses of at least this length are logged with their reason."""


async def is_retryable(_task: Any, run: Any, state: Any) -> bool:
    """Prefect's retry condition: whether the error of a failed state is transient. Called while there are
    attempts left."""
    try:
        await state.aresult()
    except BaseException as error:
        again = is_transient(error)
        pause_s = PAUSES_S[min(run.run_count, len(PAUSES_S)) - 1]
        if again and pause_s >= LOGGED_FROM_S:
            why = f"{type(error).__name__}: {error}"
            if isinstance(error, UserError):
                why = error.message
            log_line(f"{run.name}: {why}; next attempt in about {pause_s} s")
        return again
    return False


def step_task(
    name: str, run_name: str
) -> Callable[[Step[Parameters, Result]], Step[Parameters, Result]]:
    """Decorator for a task of the training loop: retried on transient errors with growing, jittered pauses,
    never cached.

    Verdicts and rollouts have their own store, so Prefect stores no results; a Prefect timeout could not
    stop a simulator or a paid call, so there is none.
    """

    as_task = task(
        name=name,
        task_run_name=run_name,
        retries=len(PAUSES_S),
        retry_delay_seconds=list(PAUSES_S),
        retry_jitter_factor=0.5,
        retry_condition_fn=is_retryable,
        cache_policy=NO_CACHE,
        persist_result=False,
    )

    def decorate(step: Step[Parameters, Result]) -> Step[Parameters, Result]:
        @wraps(step)
        async def at_work(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            with steps_at_work.item(task_run.name or name):
                return await step(*args, **kwargs)

        return cast(
            Step[Parameters, Result], as_task(at_work)
        )  # called as the function itself is

    return decorate


take_start = step_task("take start", "start of {session.run}")(training.take_start)
order_problems = step_task("order problems", "curriculum of {session.run}")(planning.plan_run)
validate_problem = step_task("validate problem", "validate {problem_id}")(Survey.validate)
sample_group = step_task("sample group", "sample {problem_id} ({batch.title})")(playing.answer)
grade_group = step_task("grade group", "grade {problem_id} ({batch.title})")(batch.grade)
score_group = step_task("teacher-score group", "score {problem_id} ({batch.title})")(
    scoring.score
)
train_step = step_task("train step", "train {batch.title}")(training.train)
regrade_problem = step_task("regrade problem", "regrade {problem_id} ({self.label})")(
    Regrading.grade
)
