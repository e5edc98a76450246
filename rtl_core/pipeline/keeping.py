"""The saved weights of a run under way: what nobody needs any more is deleted on the service, the final ones never expire."""

from __future__ import annotations

import tinker

from rtl_core.config import RunConfig
from rtl_core.pipeline.progress import progress
from rtl_core.pipeline.session import Session
from rtl_core.policy.checkpoints import Retention, delete, keep_for_ever, kept, superseded
from rtl_core.policy.faults import is_transient


def retention_of(config: RunConfig) -> Retention:
    """What the configuration says is kept."""
    section = config.checkpoints
    return Retention(section.keep_last, section.keep_best, section.keep_every)


async def tidy(session: Session) -> int:
    """Delete the weights that no rule keeps. Returns how many were deleted.

    Nothing hangs on it: what fails is told and tried again after the next step.
    """
    with session.history.reading():
        trained = session.history.trained_steps(session.run)
        evaluations = session.history.evaluations(session.run)
    old = superseded(trained, evaluations, retention_of(session.config))
    old = [state for state in old if state.step not in session.tidied]
    if not old:
        return 0
    try:
        deleted = await delete(session.require_policy().rest, old)
    except (tinker.TinkerError, ConnectionError, TimeoutError) as error:
        progress.get().line(f"old weights could not be deleted: {error}")
        return 0
    session.tidied |= {state.step for state in old}
    return deleted


async def secure(session: Session) -> None:
    """At the end of a run: tidy up, and take the expiry from the weights that stay as its result (the last, the best)."""
    await tidy(session)
    trained = session.history.trained_steps(session.run)
    retention = Retention(keep_last=1, keep_best=session.config.checkpoints.keep_best)
    keep = kept(trained, session.history.evaluations(session.run), retention)
    try:
        await keep_for_ever(session.require_policy().rest, [state for state in trained if state.step in keep])
    except tinker.NotFoundError as error:
        progress.get().line(f"the final weights are not on the service any more: {error}")
    except Exception as error:
        if not is_transient(error):
            raise
        progress.get().line(f"the expiry of the final weights could not be lifted: {error}")
