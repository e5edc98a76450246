"""Reasons to stop a run before its next step (`rtl-distill pause`, a used-up budget, metrics out of their
safe range), and whether an error is transient.

The current step is finished and recorded first. The same command resumes the run; out of a safe range only
with a changed setting.
"""

from __future__ import annotations

import time

import httpx

from rtl_core.at_work import service_pause
from rtl_core.errors import InfrastructureError, RunHealthError
from rtl_core.history.connection import HistoryBusyError
from rtl_core.learning.health import breaches
from rtl_core.observe.usage import dollars_spent, step_costs
from rtl_core.run.folder import command_for, pause_path
from rtl_core.run.session import Session

_TRANSIENT = (
    InfrastructureError,
    HistoryBusyError,
    ConnectionError,
    TimeoutError,
    httpx.TransportError,
)


def stop_reason(session: Session, under_way: int = 0) -> str | None:
    """Return why no further step or evaluation should start, in words; None to go on.

    `under_way`: number of started steps whose cost is not in the history yet.
    """
    config, budget = session.config, session.config.cost.budget_usd
    if pause_path(config).exists():
        return f"paused by request; {command_for(config, 'resume')} resumes it"
    limit = config.cost.budget_hours
    hours = (time.monotonic() - session.progress.opened_at - service_pause.seconds) / 3600
    if limit is not None and hours >= limit:
        return f"the budget of {limit:g} hours is used up; the same command resumes the run for as many hours"
    if budget is None:
        return None
    so_far = dollars_spent(session.history, session.run, config, session.prices)
    if so_far is None:
        assert config.is_free, "a run that costs dollars is refused without prices"
        return None
    # Steps in progress cost as well: stop before the one that would exceed the budget.
    costs = step_costs(session.history, session.run)[-5:]
    next_step = sum(costs) / max(1, len(costs))
    if so_far + (1 + under_way) * next_step > budget:
        return (
            f"the budget of ${budget:,.2f} would be exceeded: ${so_far:,.4f} spent, "
            f"a step costs about ${next_step:,.4f}; raise cost.budget_usd, and the same command resumes the run"
        )
    return None


def health_breach(session: Session) -> RunHealthError | None:
    """Return an error if the last recorded steps left a safe range and `health.accept_up_to_step` does not
    cover them, else None."""
    health = session.config.health
    if not health.ranges:
        return None
    done = session.history.steps_done(session.run)
    first = max(health.accept_up_to_step, done - health.patience)
    steps = session.history.step_metrics(session.run, first)
    left = breaches(list(steps.values()), health.ranges, health.patience)
    if not left:
        return None
    last = max(steps) + 1
    return RunHealthError(
        f"run {session.run} left its safe range after step {last}: {'; '.join(left)}",
        f"everything up to step {last} is saved; look at {command_for(session.config, 'report')}, then continue with "
        f"--set health.accept_up_to_step={last}, or with another range in health.ranges",
    )


def why_stop(session: Session, under_way: int = 0) -> str | RunHealthError | None:
    """Return why no further step should start: an error if metrics are out of range, words for a pause or a
    budget, else None."""
    return health_breach(session) or stop_reason(session, under_way)


def is_transient(error: BaseException) -> bool:
    """Whether a retry may succeed. A group of errors is transient if each of them is."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_transient, error.exceptions))
    # From Prefect's client, if the server was busy for longer than the client retries.
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code >= 500
    return isinstance(error, _TRANSIENT)
