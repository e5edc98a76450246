"""The task of the train step, and that of the plan."""

from __future__ import annotations

from rtl_core.rollouts import planning, start, training
from rtl_core.rollouts.batch import Batch
from rtl_core.run.session import Session
from rtl_distill.tasks.retrying import step_task


@step_task("take start", "start of {session.run}")
async def take_start(session: Session) -> None:
    """The weights that the run starts from, as its own."""
    await start.take_start(session)


@step_task("order problems", "curriculum of {session.run}")
async def order_problems(session: Session) -> int:
    """Write the curriculum and the plan of all epochs; returns the number of steps."""
    return await planning.plan_run(session)


@step_task("train step", "train {batch.title}")
async def train_step(session: Session, batch: Batch) -> str:
    """One optimizer step and its record; returns the path of the new state.

    A retry starts from the last recorded state, so the step counts once.
    """
    checkpoint = await training.train(session, batch)
    return checkpoint.state_path
