"""The task of a regrading: one problem's rollouts."""

from __future__ import annotations

from rtl_core.pipeline.regrading import regrading_of
from tasks.retrying import step_task


@step_task("regrade problem", "regrade {problem_id} ({label})")
async def regrade_problem(label: str, problem_id: str) -> int:
    """Grade one problem's rollouts again; returns how many got a verdict."""
    return await regrading_of(label).grade(problem_id)
