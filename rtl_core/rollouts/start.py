"""The weights that a run starts from, with `tinker.start_from`: taken once, saved as the run's own, noted in its history.

So step 0 is evaluated and sampled with these weights, and the run goes on when those that it came from are gone.
"""

from __future__ import annotations

from rtl_core.backend.base import Checkpoint
from rtl_core.observe.progress import progress
from rtl_core.run.session import Session


async def take_start(session: Session) -> None:
    """Set the weights that a session begins with, if they are not a fresh adapter's. A run begins once: what it noted stays."""
    config, history = session.config, session.history
    record = history.existing_run(session.run)
    if record.start_state and record.start_sampler:
        start = Checkpoint(record.start_state, record.start_sampler)
    elif config.tinker.start_from and history.last_trained_step(session.run) is None:
        trainer = await session.require_backend().open_trainer(config.tinker.start_from, weights_only=True)
        start = await trainer.save(f"{session.run}-start", config.checkpoints.ttl_s)
        await session.recorder.call(history.record_start, session.run, start.state_path, start.sampler_path)
        session.trainer = trainer
        progress.get().line(f"the student starts from {config.tinker.start_from}")
    else:
        return
    session.checkpoint, session.sampler_paths[0] = start, start.sampler_path
