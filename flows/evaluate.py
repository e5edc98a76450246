"""Evaluate: sample and grade every held-out problem with one policy, and record pass@k with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Literal

from prefect import flow
from pydantic import Field

from rtl_core.config import RunConfig, load_config
from rtl_core.errors import ProblemError, RunHealthError
from rtl_core.history.records import OWN, Conditions, EvaluationRecord
from rtl_core.reporting import breakdown
from rtl_core.reporting.figures.episodes import compared_table
from rtl_core.rollouts import evaluation, playing, survey
from rtl_core.rollouts.survey import ValidationAhead
from rtl_core.run import status
from rtl_core.run.session import Session
from rtl_core.run.state import OnGraded
from rtl_distill.flows.validate import validated_ahead
from rtl_distill.tasks.orchestration import session_of_flow
from rtl_distill.tasks.steps import grade_group, sample_group
from rtl_grader.progress import log_line, progress
from rtl_grader.work import Tally, all_of


@flow(name="evaluate", flow_run_name="evaluate {policy} of {run}", validate_parameters=True)
async def evaluate(
    run: str,
    history: str = "runs/history.duckdb",
    policy: Literal["student", "teacher"] = "student",
    split: Literal["heldout", "test"] = "heldout",
    samples: Annotated[int, Field(ge=1, le=256)] = 8,
    step: Annotated[int, Field(ge=0)] | None = None,
    other: Conditions = OWN,
) -> str:
    """Evaluate a run that was trained before, with more samples, on another split, or at an earlier step.

    Args:
        run: name of the run.
        history: the DuckDB file that holds it.
        policy: the policy that is sampled.
        split: held-out problems that the run evaluated on, or those kept apart while tuning.
        samples: answers per problem.
        step: number of train steps of the student's weights; the newest by default, 0 for the untrained student.
        other: prompt template, temperature, top_p or limit of an answer's tokens, if they differ from the
            run's own evaluations.

    Returns:
        The key of the evaluation in the history.
    """
    settings = evaluation.config_for(Path(history), run, split, other, step)
    if policy == "student":
        # So that no teacher's service has to be reachable.
        settings = settings.but("tinker", teacher=None, teachers={})
    async with session_of_flow(settings, as_visitor=True) as session:
        plan = evaluation.plan_evaluation(session, policy, step, samples, other)
        if not session.trains:
            await survey.leave_out_unsupported(session)
        async with validated_ahead(session) if session.trains else nullcontext() as ahead:
            record = await evaluate_policy(session, plan, ahead=ahead, must_succeed=True)
        assert record is not None, "it must succeed"
        progress.get().show(breakdown.view(session.history, session.problems, record))
        return record.key


@flow(name="evaluate-model", flow_run_name="evaluate by {config}", validate_parameters=True)
async def evaluate_model(config: str, overrides: list[str] | None = None) -> str:
    """Evaluate a model on all problems of a configuration whose purpose is evaluation, as a run of its own,
    without training.

    Args:
        config: a TOML file with `run.purpose = "evaluation"`, such as a protocol's.
        overrides: `section.key=value` texts that override the file.

    Returns:
        The path of the report.
    """
    return await evaluated(load_config(config, overrides or []))


async def evaluated(settings: RunConfig, on_graded: Sequence[OnGraded] = ()) -> str:
    """Evaluate a model as `evaluate_model` does. `on_graded` is called when a problem's answers are graded."""
    asks_endpoint = settings.evaluation.endpoint is not None
    async with session_of_flow(settings, with_policy=not asks_endpoint) as session:
        async with status.run_status(session):
            session.progress.on_graded += on_graded
            log_line(f"recorded as run {session.run}; the same command resumes it")
            await survey.leave_out_unsupported(session)
            if not asks_endpoint:
                evaluation.log_unanswered(session)
            async with playing.players(session) as evaluations:
                for plan, player in evaluations:
                    record = await evaluate_policy(
                        session, plan, must_succeed=True, player=player
                    )
        if settings.evaluation.agentic:
            assert record is not None, "it must succeed"
            progress.get().show(compared_table(session.history, record))
        report = status.finish(session)
        for line in evaluation.incomplete_warnings(session):
            log_line(line)
        return report


@flow(
    name="evaluate-policy",
    flow_run_name="{session.run} {plan.policy} after {plan.step} steps",
    validate_parameters=False,
)
async def evaluate_policy(
    session: Session,
    plan: evaluation.EvaluationPlan,
    ahead: ValidationAhead | None = None,
    must_succeed: bool = False,
    player: playing.Player | None = None,
) -> EvaluationRecord | None:
    """Run one evaluation on an open session, unless the history holds it already. Returns its record, or
    None if it failed.

    A failed evaluation is recorded and does not end a run, unless no problem is fit. With `must_succeed`,
    if nothing else is left to do, every error is raised. With `ahead`, each problem is validated before it
    is sampled. A `player` answers instead of the session's policy.
    """
    tell = progress.get()
    if record := evaluation.result_of(session.history, session.run, plan):
        return record
    if older := evaluation.needs_older_weights(session, plan):
        if must_succeed:
            raise older
        tell.line(f"left out: {older.message}")
        return None
    tell.stage(f"evaluation: {evaluation.policy_in_words(session.config, plan)}")
    answers = evaluation.evaluation_batch(session, plan)
    tally = Tally("problems", len(answers.problem_ids))

    async def group(problem_id: str) -> None:
        if ahead is not None:
            await ahead.finished([problem_id])
        if problem_id in session.unfit:
            return
        try:
            await sample_group(session, answers, problem_id, player)
            await grade_group(session, answers, problem_id)
            for call in session.progress.on_graded:
                call(problem_id, answers.group(problem_id))
        except RunHealthError as error:
            if session.trains:
                raise
            # One harness that cannot run here must not prevent the figures of all others.
            session.unfit[problem_id] = "its answers could not be graded"
            tell.line(f"left out: {error.message}")
        tally.advance()

    try:
        await all_of(map(group, answers.problem_ids))
        record = await evaluation.record(session, answers, plan)
        for line in evaluation.in_words(session, answers, plan, record):
            tell.line(line)
        return record
    except Exception as error:
        await evaluation.record_failure(session.recorder, session.run, plan)
        if must_succeed or isinstance(error, ProblemError):
            raise
        tell.line(f"the evaluation failed and the run goes on without it: {error}")
        return None
