"""Why a run stops. At its next step: by `rtl-distill pause`, because its budget is used up, or because it left its safe range; the step
under way is finished and recorded, and the same command goes on from there, after the last only when it is told to. And at once, by an
error: whether time can mend it.
"""

from __future__ import annotations

import time

import httpx

from rtl_core.errors import InfrastructureError, RunHealthError
from rtl_core.history.connection import HistoryBusyError
from rtl_core.learning.health import breaches
from rtl_core.observe.usage import dollars_spent, step_costs
from rtl_core.run.folder import pause_path
from rtl_core.run.session import Session

_TRANSIENT = (InfrastructureError, HistoryBusyError, ConnectionError, TimeoutError, httpx.TransportError)


def stop_reason(session: Session, under_way: int = 0) -> str | None:
    """Why no further step or evaluation should begin, in words; None to go on.

    `under_way` is how many steps were begun whose cost is not in the history yet.
    """
    config = session.config
    if pause_path(config).exists():
        return f"paused by request; `rtl-distill resume {session.run}` goes on"
    hours = (time.monotonic() - session.life.opened_at) / 3600
    if config.cost.budget_hours is not None and hours >= config.cost.budget_hours:
        return (
            f"the budget of {config.cost.budget_hours:g} hours is used up; the same command goes on with as many again"
        )
    if config.cost.budget_usd is None:
        return None
    so_far = dollars_spent(session.history, session.run, config, session.prices)
    assert so_far is not None, "a run with a budget in dollars is refused without prices"
    # Half-begun steps cost as well: stop before the one that would not fit.
    costs = step_costs(session.history, session.run)
    next_step = sum(costs[-5:]) / len(costs[-5:]) if costs else 0.0
    if so_far + (1 + under_way) * next_step > config.cost.budget_usd:
        return (
            f"the budget of ${config.cost.budget_usd:,.2f} would be exceeded: ${so_far:,.4f} spent, "
            f"a step costs about ${next_step:,.4f}; raise cost.budget_usd and the same command goes on"
        )
    return None


def health_breach(session: Session) -> RunHealthError | None:
    """The error of a run whose last recorded steps left a safe range, unless it was told to go on; None for a healthy one."""
    health = session.config.health
    if not health.ranges:
        return None
    trained = session.history.last_trained_step(session.run)
    first = max(health.accept_up_to_step, trained.step - health.patience + 1 if trained else 0)
    steps = session.history.step_metrics(session.run, first)
    ranges = {metric: (bounds.min, bounds.max) for metric, bounds in health.ranges.items()}
    found = breaches(list(steps.values()), ranges, health.patience)
    if not found:
        return None
    last = max(steps) + 1
    return RunHealthError(
        f"run {session.run} left its safe range after step {last}: {'; '.join(map(str, found))}",
        f"everything up to step {last} is saved; look at `rtl-distill report {session.run}`, then go on all the same with "
        f"--set health.accept_up_to_step={last}, or with another range in health.ranges",
    )


def why_stop(session: Session, under_way: int = 0) -> str | RunHealthError | None:
    """Why no further step should begin: an error where the run is not well, words where it was asked to stop."""
    return health_breach(session) or stop_reason(session, under_way)


def is_transient(error: BaseException) -> bool:
    """Whether the same work may succeed when it is done again. A group of errors is, when each of them is."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_transient(one) for one in error.exceptions)
    # Of Prefect's client, whose server was busy for longer than it asks again.
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code >= 500
    return isinstance(error, _TRANSIENT)
