"""The task of the train step, and that of the plan."""

from __future__ import annotations

from rtl_core.pipeline import batch, planning, training
from rtl_core.pipeline.session import session_of
from tasks.retrying import step_task


@step_task("order problems", "curriculum of {run}")
async def order_problems(run: str) -> int:
    """Write the curriculum and the plan of all epochs; returns the number of steps."""
    return await planning.plan_run(session_of(run))


@step_task("train step", "train {key}")
async def train_step(run: str, key: str) -> str:
    """One optimizer step and its record; returns the path of the new state.

    A retry starts from the last recorded state, so the step counts once.
    """
    session = session_of(run)
    checkpoint = await training.train(session, batch.batch_of(run, key))
    return checkpoint.state_path
