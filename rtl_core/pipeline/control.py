"""Asking a run to stop at its next step: by `rtl-distill pause`, or because its budget is used up.

Either way the step under way is finished and recorded, and the same command goes on from there.
"""

from __future__ import annotations

import time

from rtl_core.pipeline.session import Session
from rtl_core.pipeline.spending import spent, step_costs
from rtl_core.pipeline.stored import pause_path
from rtl_core.policy.cost import total_dollars


def stop_reason(session: Session) -> str | None:
    """Why no further step or evaluation should begin, in words; None to go on."""
    config = session.config
    if pause_path(config).exists():
        return f"paused by request; `rtl-distill resume {session.run}` goes on"
    hours = (time.monotonic() - session.opened_at) / 3600
    if config.cost.budget_hours is not None and hours >= config.cost.budget_hours:
        return (
            f"the budget of {config.cost.budget_hours:g} hours is used up; the same command goes on with as many again"
        )
    if config.cost.budget_usd is None:
        return None
    so_far = total_dollars(spent(session.history, session.run, config), session.prices)
    assert so_far is not None, "a run with a budget in dollars is refused without prices"
    # Half-begun steps cost as well: stop before the one that would not fit.
    costs = step_costs(session.history, session.run)
    next_step = sum(costs[-5:]) / len(costs[-5:]) if costs else 0.0
    if so_far + next_step > config.cost.budget_usd:
        return (
            f"the budget of ${config.cost.budget_usd:,.2f} would be exceeded: ${so_far:,.4f} spent, "
            f"a step costs about ${next_step:,.4f}; raise cost.budget_usd and the same command goes on"
        )
    return None
