"""Train: validate, order, evaluate, then per epoch and step sample → grade → teacher-score → credit →
train, evaluate again, report."""

from __future__ import annotations

import asyncio
from functools import partial

from prefect import flow

from rtl_core.config import NO_OPTIONS, Options, Override, load_config
from rtl_core.errors import ConfigError, RunHealthError, SamplerDriftError
from rtl_core.history.records import StepState
from rtl_core.rollouts import planning
from rtl_core.rollouts.auditing import audit_group
from rtl_core.rollouts.batch import Batch
from rtl_core.rollouts.datums import credit_group
from rtl_core.rollouts.evaluation import plan_evaluation
from rtl_core.rollouts.side_by_side import in_order
from rtl_core.rollouts.survey import ValidationAhead
from rtl_core.rollouts.training import set_aside_once
from rtl_core.run import retention, status, stopping
from rtl_core.run.session import Session
from rtl_distill.flows.evaluate import evaluate_policy
from rtl_distill.flows.validate import validated_ahead
from rtl_distill.tasks.artifacts import Publisher
from rtl_distill.tasks.orchestration import (
    cancelled_with_flow_run,
    named_by_epoch,
    named_by_run,
    session_of_flow,
    this_flow_run,
)
from rtl_distill.tasks.steps import (
    grade_group,
    order_problems,
    sample_group,
    score_group,
    take_start,
    train_step,
)
from rtl_grader.progress import progress
from rtl_grader.work import all_of


@flow(name="train", flow_run_name=named_by_run, validate_parameters=True)
async def train(
    config: str = "demo",
    overrides: list[Override] | None = None,
    accept_changes: bool = False,
    options: Options = NO_OPTIONS,
) -> str:
    """Train a student with a configuration; an existing run resumes where it stopped.

    Args:
        config: a TOML file, or the name of a shipped configuration.
        overrides: `section.key=value` texts that override the file.
        accept_changes: resume although problems, reward or model differ from those the run started with.
        options: keys that often change from run to run; they override `overrides`.

    Returns:
        The path of the report, or why the run stopped if it was paused or its budget is used up.
    """
    settings = load_config(config, [*(overrides or []), *options.as_overrides()])
    if settings.run.purpose != "train":
        raise ConfigError(
            f"run {settings.run.name!r} evaluates a model and does not train (run.purpose)",
            "`rtl-distill evaluate --model` resumes it",
        )
    opened = session_of_flow(settings, accept_changes=accept_changes, holder=this_flow_run())
    async with opened as session:
        publisher = Publisher(session)
        publisher.at_start()
        session.progress.on_step.append(publisher.after_step)
        async with (
            status.run_status(session),
            cancelled_with_flow_run(session.progress.cancelled_by_request),
            validated_ahead(session) as ahead,
        ):
            session.progress.stopped = await run_remaining(session, ahead)
        report = status.finish(session)
        await publisher.at_end()
        return report


async def run_remaining(session: Session, ahead: ValidationAhead) -> str | None:
    """Do everything that the history does not hold yet, in order. Returns why it stopped early, or None."""
    if session.config.tinker.start_from:
        await take_start(session)
    if session.config.problems.validate_first:
        await ahead.finished(session.problems)
    await measure_problems(session, ahead)
    steps = await order_problems(session)
    if reason := stopping.stop_reason(session):
        return reason
    ahead.begin(problem.id for problem in session.loaded.heldout)
    ahead.begin(planning.next_problems(session.weights.steps, -1))
    await evaluate_policy(session, plan_evaluation(session, "student", 0), ahead)
    reason, _ = await all_of([train_epochs(session, ahead), evaluate_teacher(session, ahead)])
    if reason is None:
        try:
            await evaluate_policy(
                session, plan_evaluation(session, "student", steps), must_succeed=True
            )
        except Exception:
            await retention.keep_final_weights(
                session
            )  # they must not expire before the command is repeated
            raise
        await retention.keep_final_weights(session)
    return reason


async def evaluate_teacher(session: Session, ahead: ValidationAhead) -> None:
    """Evaluate the teacher. Runs beside the first steps, which do not depend on it."""
    if session.config.evaluation.teacher:
        await evaluate_policy(session, plan_evaluation(session, "teacher", 0), ahead)


async def train_epochs(session: Session, ahead: ValidationAhead) -> str | None:
    """Train all epochs. Returns why it stopped early, or None."""
    # A crash may have happened between a step and its evaluation.
    await evaluate_if_due(session, session.history.steps_done(session.run))
    for epoch in range(session.config.run.epochs):
        if reason := await train_epoch(session, ahead, epoch):
            return reason
    return None


async def evaluate_if_due(session: Session, step: int) -> None:
    """Run the intermediate evaluation that is due after `step` train steps, if any; not after the last step."""
    if step <= session.weights.steps[-1].step and session.config.evaluates_after(step):
        await evaluate_policy(session, plan_evaluation(session, "student", step))


@flow(name="epoch", flow_run_name=named_by_epoch, validate_parameters=False)
async def train_epoch(session: Session, ahead: ValidationAhead, epoch: int) -> str | None:
    """Train the steps of one epoch that the history does not hold yet. Returns why it stopped early, or None.

    With a staleness of n, the next n steps are prepared while one is trained.
    """
    progress.get().stage(f"epoch {epoch + 1} of {session.config.run.epochs}")
    stopped: str | RunHealthError | None = None
    for steps in planning.remaining_steps(session.config, session.weights.steps, epoch):
        stopped = stopped or await in_order(
            steps,
            prepare=partial(prepare_step, session, ahead),
            finish=partial(train_batch, session, ahead),
            after=partial(after_step, session),
            stop=partial(stopping.why_stop, session),
            ahead=session.config.learning.staleness,
        )
    if isinstance(stopped, RunHealthError):
        raise stopped
    return stopped


async def prepare_step(session: Session, ahead: ValidationAhead, state: StepState) -> Batch:
    """Sample, grade, score and credit all groups concurrently; without a KL, replace groups that teach nothing."""
    config, steps = session.config, session.weights.steps
    step = await planning.batch_of(session, state, ahead.finished)
    ahead.begin(planning.next_problems(steps, state.step))
    stages = [grade_group]
    if planning.needs_scores(config, step, len(steps)):
        stages.append(score_group)

    async def place(slot: int) -> None:
        problem_id: str | None = step.planned[slot]
        attempt = 0
        while problem_id is not None:
            await ahead.finished([problem_id])
            if problem_id in session.unfit:
                step.quarantined.add(problem_id)
            else:
                await sample_group(session, step, problem_id)
                if planning.score_reads_verdicts(config):
                    for stage in stages:
                        await stage(session, step, problem_id)
                else:
                    await asyncio.gather(
                        *(stage(session, step, problem_id) for stage in stages)
                    )
                problem = session.problems[problem_id]
                await audit_group(config, session.graders, session.recorder, step, problem)
                credit_group(config, session.recorder, step, problem_id)
            attempt += 1
            problem_id = planning.substitute(session, step, slot, attempt)

    if planning.needs_answers(config, step):
        await all_of(map(place, range(len(step.planned))))
    return step


async def train_batch(session: Session, ahead: ValidationAhead, batch: Batch) -> None:
    """Train on a batch. If trainer and sampler disagree on its answers, they are set aside and the step is
    prepared once more."""
    try:
        await train_step(session, batch)
    except SamplerDriftError as error:
        if not await set_aside_once(session, batch, error):
            raise
        state = next(one for one in session.weights.steps if one.step == batch.step)
        await train_step(session, await prepare_step(session, ahead, state))


async def after_step(session: Session, batch: Batch) -> None:
    """After a trained step, delete old weights, report the step, and evaluate the student if an evaluation is due."""
    await retention.delete_old_weights(session)
    status.after_step(session, batch.step)
    await evaluate_if_due(session, batch.step + 1)


async def measure_problems(session: Session, ahead: ValidationAhead) -> None:
    """Measure the pass rates of student and teacher on the training problems before the first step, if the
    curriculum needs them."""
    for batch in planning.measurements(session):
        progress.get().stage(f"measuring the training problems: {batch.sampler}")

        async def group(problem_id: str, batch: Batch = batch) -> None:
            await ahead.finished([problem_id])
            if problem_id not in session.unfit:
                await sample_group(session, batch, problem_id)
                await grade_group(session, batch, problem_id)

        await all_of(map(group, batch.problem_ids))
        await session.recorder.settle()
