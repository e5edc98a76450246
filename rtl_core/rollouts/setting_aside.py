"""A step whose answers cannot be trained on is sampled anew; what was sampled first stays in the history, marked."""

from __future__ import annotations

from rtl_core.errors import SamplerDriftError
from rtl_core.observe.progress import progress
from rtl_core.rollouts.batch import Batch
from rtl_core.run.session import Session


async def set_aside_once(session: Session, batch: Batch, why: SamplerDriftError) -> bool:
    """Set a step's answers aside; whether that was done, which it is once for each step. A second time is for a person to decide."""
    aside = "SELECT 1 FROM rollouts WHERE run = ? AND step = ? AND purpose = 'set_aside' LIMIT 1"
    if session.history.query(aside, [session.run, batch.step]).num_rows:
        return False
    await session.recorder.settle()
    count = await session.recorder.call(session.history.set_step_aside, session.run, batch.step)
    progress.get().line(f"{why.message}; its {count} answers are set aside, and the step is sampled anew")
    return True
