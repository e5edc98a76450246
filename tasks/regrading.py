"""The task of a regrading: one problem's rollouts."""

from __future__ import annotations

from rtl_core.rollouts.regrading import Regrading
from rtl_distill.tasks.retrying import step_task


@step_task("regrade problem", "regrade {problem_id} ({regrading.label})")
async def regrade_problem(regrading: Regrading, problem_id: str) -> int:
    """Grade one problem's rollouts again; returns how many got a verdict."""
    return await regrading.grade(problem_id)
