"""The task of validation: one problem shows whether its harness tells right from wrong."""

from __future__ import annotations

from rtl_core.rollouts.survey import Survey
from rtl_distill.tasks.retrying import step_task


@step_task("validate problem", "validate {problem_id}")
async def validate_problem(survey: Survey, problem_id: str) -> str:
    """Validate one problem of an open session; returns its status. Tried again when the executor fails."""
    return await survey.validate(problem_id)
