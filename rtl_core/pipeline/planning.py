"""The plan of a run: which problems in which step, written once and read again on resume."""

from __future__ import annotations

from rtl_core.errors import ProblemError
from rtl_core.history.records import StepPlan, StepState
from rtl_core.learning.curriculum import order_problems, plan_epoch
from rtl_core.pipeline.batch import Batch
from rtl_core.pipeline.session import Session
from rtl_core.policy.trainer import Checkpoint
from rtl_core.problems.problem import Problem


async def plan_run(session: Session) -> int:
    """Write the order of problems and the plan of every epoch that has none yet. Returns the number of steps in all.

    Raises:
        ProblemError: no problem is fit to train on, or none is held out.
    """
    config, history = session.config, session.history
    train, heldout = session.usable(session.loaded.train), session.usable(session.loaded.heldout)
    for name, left in (("train on", train), ("evaluate on", heldout)):
        if not left:
            reasons = sorted(set(session.unfit.values()))[:5]
            raise ProblemError(
                f"no problem is fit to {name}: {'; '.join(reasons)}", "see `rtl-distill query validation`"
            )
    planned = history.steps(session.run)
    epochs_planned = {state.epoch for state in planned}
    if missing := [epoch for epoch in range(config.run.epochs) if epoch not in epochs_planned]:
        ordered = order_problems(train, config.curriculum.order, config.run.seed)
        rows: list[tuple[Problem, str, int | None]] = [
            (problem, "train", position) for position, problem in enumerate(ordered)
        ]
        rows += [(problem, "heldout", None) for problem in heldout]
        excluded = [session.problems[problem_id] for problem_id in session.unfit]
        rows += [(problem, "excluded", None) for problem in excluded]
        await session.recorder.call(history.record_problems, session.run, rows)
        step = 1 + max((state.step for state in planned), default=-1)
        for epoch in missing:
            groups = plan_epoch(
                [p.id for p in ordered],
                config.curriculum.problems_per_step,
                epoch,
                config.run.seed,
                config.curriculum.order,
            )
            plans = [StepPlan(step=step + i, problem_ids=tuple(ids)) for i, ids in enumerate(groups)]
            await session.recorder.call(history.plan_epoch, session.run, epoch, plans)
            step += len(plans)
    _take_up(session)
    return len(session.steps)


def _take_up(session: Session) -> None:
    """Set the session's steps and checkpoint to what the history says is planned and done."""
    epochs = range(session.config.run.epochs)
    session.steps = [state for state in session.history.steps(session.run) if state.epoch in epochs]
    trained = [state for state in session.steps if state.status == "trained"]
    if trained and trained[-1].state_path and trained[-1].sampler_path:
        session.checkpoint = Checkpoint(trained[-1].state_path, trained[-1].sampler_path)


def todo(session: Session, epoch: int) -> list[StepState]:
    """The steps of an epoch that the history did not hold as trained when the run was opened."""
    return [state for state in session.steps if state.epoch == epoch and state.status == "planned"]


def step_batch(session: Session, state: StepState) -> Batch:
    """The batch of one planned train step, sampled from the weights that the last recorded step left."""
    return Batch(
        purpose="train",
        epoch=state.epoch,
        step=state.step,
        policy_step=state.step,
        problem_ids=state.problem_ids,
        group_size=session.config.sampling.group_size,
        sampler_path=session.checkpoint.sampler_path if session.checkpoint else None,
    )
