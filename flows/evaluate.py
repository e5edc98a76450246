"""Evaluate: sample and grade every held-out problem with one policy, and record pass@k with intervals."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from prefect import flow
from pydantic import Field

from flows.validate import validate_problems
from rtl_core.config.models import Template
from rtl_core.observe.progress import progress
from rtl_core.rollouts import batch, evaluation, reopen
from rtl_core.rollouts.concurrently import for_each
from rtl_core.run.session import Session, open_session
from tasks.cluster import cluster_of
from tasks.groups import grade_group, refine_group, sample_group
from tasks.logs import lines_in_flow_run_log


@flow(name="evaluate", flow_run_name="evaluate {policy} of {run}", validate_parameters=True)
async def evaluate(
    run: str,
    history: str = "runs/history.duckdb",
    policy: Literal["student", "teacher"] = "student",
    split: Literal["heldout", "test"] = "heldout",
    samples: Annotated[int, Field(ge=1, le=256)] = 8,
    step: Annotated[int, Field(ge=0)] | None = None,
    template: Template | None = None,
    temperature: Annotated[float, Field(gt=0)] | None = None,
) -> str:
    """Evaluate a run that was trained before, with more samples, on another split, or at an earlier step.

    Args:
        run: name of the run.
        history: the DuckDB file that holds it.
        policy: whose answers are sampled.
        split: held-out problems that the run evaluated on, or the ones kept apart while tuning.
        samples: answers per problem.
        step: number of train steps of the student's weights; the newest by default, 0 for the untrained student.
        template: another prompt template than the run's own (`prompting.template`), to compare the two.
        temperature: another sampling temperature than the run's own.

    Returns:
        The key of the evaluation in the history.
    """
    settings = reopen.settings_of(Path(history), run, split, template, temperature)
    with lines_in_flow_run_log(), cluster_of(settings) as cluster:
        async with open_session(settings, as_visitor=True, cluster=cluster) as session:
            plan = reopen.plan(session, policy, step, samples, template, temperature)
            await validate_problems(session)
            await evaluate_policy(session, plan, must_succeed=True)
            evaluation.show(session, plan)
            return plan.key(run)


@flow(
    name="evaluate-policy",
    flow_run_name="{session.run} {plan.policy} after {plan.step} steps",
    validate_parameters=False,
)
async def evaluate_policy(session: Session, plan: evaluation.EvaluationPlan, must_succeed: bool = False) -> None:
    """Make one evaluation on an open session, unless the history holds it already.

    A failed one is recorded as that and never ends a run; with `must_succeed`, where nothing but the evaluation is wanted, its
    error is raised.
    """
    tell = progress.get()
    if evaluation.is_done(session, plan):
        return
    tell.stage(f"evaluation: {plan.policy}" + (f" after {plan.step} steps" if plan.policy == "student" else ""))
    held = batch.open_batch(session, evaluation.evaluation_batch(session, plan))
    done = 0

    async def group(problem_id: str) -> None:
        nonlocal done
        await sample_group(session, held, problem_id)
        await grade_group(session, held, problem_id)
        for turn in range(2, session.config.refinement.turns + 1):
            await refine_group(session, held, problem_id, turn)
        done += 1
        tell.advance("problems", done, len(held.problem_ids))

    try:
        await for_each(group, held.problem_ids)
        record = await evaluation.record(session, held, plan)
        tell.line(evaluation.in_words(record))
        for line in [*evaluation.sources_in_words(session, record), *evaluation.turns_in_words(held)]:
            tell.line(line)
    except Exception as error:
        await evaluation.record_failure(session, plan)
        if must_succeed:
            raise
        tell.line(f"the evaluation failed and the run goes on without it: {error}")
