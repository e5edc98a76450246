"""The plan of a run: which problems each step takes and which weights sample it; written once and read again on resume.

With pools, the problems of a step are drawn by measured pass rates before it is sampled; problems that
teach nothing are replaced. Everything follows from the history, the configuration and the seed, so that a
resumed run draws the same problems.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from rtl_core.backend.base import Checkpoint
from rtl_core.errors import PolicyError, ProblemError
from rtl_core.history.records import StepPlan, StepState
from rtl_core.learning import pools
from rtl_core.learning.curriculum import (
    UNMEASURED,
    MeasuredRates,
    fill_places,
    first_pool,
    order_problems,
    plan_epoch,
    replacement,
    replacement_candidates,
)
from rtl_core.learning.pools import POOLS, GroupResult, PoolRules, Standing, draw
from rtl_core.reporting.text import EQUAL_DIFFICULTY
from rtl_core.rollouts.batch import Batch
from rtl_core.rollouts.datums import has_signal
from rtl_core.run.session import Session
from rtl_core.types.rollout import PolicyName
from rtl_grader.progress import progress
from rtl_grader.types.problem import Problem

_GROUPS = """
SELECT r.step, r.problem_id, count(*) FILTER (WHERE v.outcome = 'passed') AS passed,
    CASE WHEN count(v.rollout) = count(*) THEN count(*) ELSE 0 END AS graded -- an incomplete group was quarantined
FROM rollouts r LEFT JOIN verdicts v USING (rollout)
WHERE r.run = ? AND r.purpose = 'train' AND r.step < ?
GROUP BY r.step, r.problem_id
"""
_MEASURED = """
SELECT r.problem_id, r.policy, avg(CAST(v.outcome = 'passed' AS INTEGER)) AS rate
FROM rollouts r JOIN verdicts v USING (rollout) WHERE r.run = ? AND r.purpose = 'measurement' GROUP BY ALL
"""


async def plan_run(session: Session) -> int:
    """Record the order of problems and a plan for every epoch without one. Returns the total number of steps.

    Raises:
        ProblemError: no problem is fit to train on, none is held out, or none has an answer to imitate.
    """
    config, history = session.config, session.history
    train, heldout = session.usable(session.loaded.train), session.usable(session.loaded.heldout)
    for use, problems in (("train on", train), ("evaluate on", heldout)):
        if not problems:
            raise unfit_error(session, use)
    planned = history.steps(session.run)
    epochs_planned = {state.epoch for state in planned}
    if missing := [epoch for epoch in range(config.run.epochs) if epoch not in epochs_planned]:
        section = config.curriculum
        ordered = order_problems(train, section.order, config.run.seed, measured_rates(session))
        rows: list[tuple[Problem, str, int | None]] = [
            (problem, "train", at) for at, problem in enumerate(ordered)
        ]
        rows += [(problem, "heldout", None) for problem in heldout]
        rows += [(session.problems[problem_id], "excluded", None) for problem_id in session.unfit]
        await session.recorder.call(history.record_problems, session.run, rows)
        ids = [problem.id for problem in ordered]
        imitable = {problem.id for problem in ordered if problem.has_whole_golden}
        if config.learning.imitates_golden and not imitable:
            raise ProblemError(
                "supervised steps imitate known-good answers, and no problem that is fit to train on has one",
                'set learning.warm_start_source = "teacher"',
            )
        step = 1 + max((state.step for state in planned), default=-1)
        for epoch in missing:
            sizes, supervised = (
                config.step_sizes(len(ids), step),
                max(0, config.learning.warm_start_steps - step),
            )
            only = imitable if config.learning.imitates_golden else None
            groups = plan_epoch(ids, sizes, epoch, config.run.seed, section.order, supervised, only)
            plans = [
                StepPlan(step=step + i, problem_ids=tuple(group)) for i, group in enumerate(groups)
            ]
            await session.recorder.call(history.plan_epoch, session.run, epoch, plans)
            step += len(plans)
    _load_progress(session)
    if config.curriculum.order != "shuffled":
        progress.get().line(EQUAL_DIFFICULTY)
    return len(session.weights.steps)


def _load_progress(session: Session) -> None:
    """Set the session's steps and weights from the history."""
    epochs = range(session.config.run.epochs)
    session.weights.steps = [
        state for state in session.history.steps(session.run) if state.epoch in epochs
    ]
    trained = [state for state in session.weights.steps if state.status == "trained"]
    session.weights.sampler_paths |= {
        state.step + 1: state.sampler_path for state in trained if state.sampler_path
    }
    if trained and trained[-1].state_path and trained[-1].sampler_path:
        session.weights.checkpoint = Checkpoint(trained[-1].state_path, trained[-1].sampler_path)


def remaining_steps(session: Session, epoch: int) -> list[list[StepState]]:
    """The steps of an epoch that were not trained when the run was opened: supervised ones, then the others.

    Each part is a list; the first must end before the second starts.
    """
    steps = [
        state
        for state in session.weights.steps
        if state.epoch == epoch and state.status == "planned"
    ]
    return [
        list(part) for _, part in groupby(steps, lambda state: is_warm_start(session, state.step))
    ]


def is_warm_start(session: Session, step: int) -> bool:
    """Whether a step is one of the supervised steps at the start of the run."""
    return step < session.config.learning.warm_start_steps


def next_problems(session: Session, state: StepState | None, steps: int) -> list[str]:
    """Problems of the next `steps` planned steps after one (None: from the first remaining), if they have
    been drawn."""
    planned = [
        s
        for s in session.weights.steps
        if s.status == "planned" and (state is None or s.step > state.step)
    ]
    return [problem_id for s in planned[:steps] for problem_id in s.problem_ids]


def policy_step(session: Session, state: StepState) -> int:
    """Number of train steps in the weights that sample this step: `learning.staleness` fewer than precede
    it, but at least those before its epoch and those of the warm start, since neither overlaps with later
    steps.

    The number does not depend on when the step is sampled, so that a resumed run samples from the same weights.
    """
    first = min(other.step for other in session.weights.steps if other.epoch == state.epoch)
    learning = session.config.learning
    warm = learning.warm_start_steps if state.step >= learning.warm_start_steps else 0
    return max(first, warm, state.step - learning.staleness)


async def batch_of(
    session: Session,
    state: StepState,
    validated: Callable[[Sequence[str]], Awaitable[None]] | None = None,
) -> Batch:
    """Return the batch of a planned train step.

    With pools, the problems of an RL step are drawn and recorded now; so are replacements of planned
    problems that turn out unfit.

    Args:
        validated: waits until problems are validated; unfit ones are then in `session.unfit`. None: all are
            validated already.

    Raises:
        PolicyError: the weights that should sample it are not in the history.
        ProblemError: no problem is fit.
    """
    step = state.step
    seen = policy_step(session, state)
    problem_ids: tuple[str, ...] = ()
    while not problem_ids or any(problem_id in session.unfit for problem_id in problem_ids):
        problem_ids = (
            planned_step(session, state) if state.problem_ids else draw_step(session, step, seen)
        )
        # Before the await: the next step is drawn knowing this one.
        place = next(i for i, other in enumerate(session.weights.steps) if other.step == step)
        session.weights.steps[place] = state.model_copy(update={"problem_ids": problem_ids})
        if validated is not None:
            await validated(problem_ids)
    if problem_ids != state.problem_ids:
        plan = StepPlan(step=step, problem_ids=problem_ids)
        await session.recorder.call(session.history.plan_step, session.run, plan)
    warm, config = is_warm_start(session, step), session.config
    if seen and not warm and seen not in session.weights.sampler_paths:
        raise PolicyError(
            f"step {step} must be sampled from the weights after {seen} steps, which are not in the history",
            "set learning.staleness = 0 with --accept-changes",
        )
    return Batch(
        purpose="warm_start" if warm else "train",
        sampler="teacher" if warm else "student",
        epoch=state.epoch,
        step=step,
        policy_step=seen,
        problem_ids=problem_ids,
        group_size=config.warm_start_group if warm else config.sampling.group_size,
        sampler_path=None if warm else session.weights.sampler_paths.get(seen),
    )


def needs_answers(session: Session, batch: Batch) -> bool:
    """Whether a step samples answers; a warm start on golden answers does not."""
    return (
        not is_warm_start(session, batch.step)
        or session.config.learning.warm_start_source == "teacher"
    )


def needs_scores(session: Session, batch: Batch) -> bool:
    """Whether the teacher scores a step's answers."""
    return batch.purpose == "train" and session.config.learning.uses_kl_at(
        batch.step, len(session.weights.steps)
    )


def score_reads_verdicts(session: Session) -> bool:
    """Whether a group must be graded before it is scored; otherwise both run concurrently."""
    return session.config.learning.self_taught and session.config.learning.self_hint == "verdict"


def measurements(session: Session) -> Iterator[Batch]:
    """Yield the batches that measure pass rates on the training problems before the first step; none once
    the run has a plan."""
    if not session.config.curriculum.measure_samples or session.history.steps(session.run):
        return
    policies: list[PolicyName] = (
        ["student", "teacher"] if session.config.tinker.teacher else ["student"]
    )
    for policy in policies:
        yield Batch(
            purpose="measurement",
            sampler=policy,
            epoch=-1,
            step=0,
            policy_step=0,
            problem_ids=tuple(problem.id for problem in session.usable(session.loaded.train)),
            group_size=session.config.curriculum.measure_samples,
            sampler_path=session.weights.sampler_paths.get(0) if policy == "student" else None,
        )


def measured_rates(session: Session) -> dict[str, MeasuredRates]:
    """Mapping of problem id to pass rates measured before the first step; empty when nothing was measured."""
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for row in session.history.query(_MEASURED, [session.run]).to_pylist():
        found[row["problem_id"]][row["policy"]] = row["rate"]
    return {problem_id: MeasuredRates(**rates) for problem_id, rates in found.items()}


def standings_at(session: Session, policy_step: int) -> dict[str, Standing]:
    """Standing of every usable training problem, from the groups of the steps before `policy_step`. These
    are trained and final."""
    section, rates = session.config.curriculum, measured_rates(session)
    names = ("easy_from", "hard_below", "window", "rest_after", "rest_steps")
    rules = PoolRules(weights=section.pool_weights, **section.model_dump(include=set(names)))
    start = {
        problem.id: first_pool(problem, rates.get(problem.id, UNMEASURED), rules)
        for problem in session.usable(session.loaded.train)
    }
    rows = session.history.query(_GROUPS, [session.run, policy_step]).to_pylist()
    return pools.standings(start, [GroupResult(**row) for row in rows], rules)


def unfit_error(session: Session, use: str) -> ProblemError:
    """Return the error for a run without a usable problem; `use` says what for."""
    reasons = sorted(set(session.unfit.values()))[:5]
    return ProblemError(
        f"no problem is fit to {use}: {'; '.join(reasons)}", "see `rtl-distill query validation`"
    )


def planned_step(session: Session, state: StepState) -> tuple[str, ...]:
    """Return the problems of a planned step. A problem that has become unfit is replaced by its neighbour
    in the curriculum.

    Raises:
        ProblemError: none is fit.
    """
    if not any(problem_id in session.unfit for problem_id in state.problem_ids):
        return state.problem_ids
    config, train = session.config, session.loaded.train
    usable = session.usable(train)
    if config.learning.imitates_golden and state.step < config.learning.warm_start_steps:
        usable = [problem for problem in usable if problem.has_whole_golden]
    ordered = order_problems(
        train, config.curriculum.order, config.run.seed, measured_rates(session)
    )
    found = fill_places(
        state.problem_ids, [problem.id for problem in ordered], {problem.id for problem in usable}
    )
    if not found:
        raise unfit_error(session, "train on")
    return tuple(found)


def draw_step(session: Session, step: int, policy_step: int) -> tuple[str, ...]:
    """Draw the problems of a step from the pools. Problems of steps in progress count as seen, although
    they have no results yet.

    Raises:
        ProblemError: none is fit.
    """
    config, now = session.config, standings_at(session, policy_step)
    for state in session.weights.steps:
        if policy_step <= state.step < step:
            now |= {p: replace(now[p], last_step=state.step) for p in state.problem_ids if p in now}
    drawn = draw(
        now,
        step,
        config.problems_of_step(step),
        random.Random(f"pools/{config.run.seed}/{step}"),
        config.curriculum.pool_weights,
    )
    if not drawn:
        raise unfit_error(session, "train on")
    return tuple(drawn)


def pool_metrics(session: Session, batch: Batch) -> dict[str, float]:
    """Number of problems in each pool when a step was drawn, and of resting ones; empty without pools."""
    if session.config.curriculum.order != "pools":
        return {}
    now = standings_at(session, batch.policy_step).values()
    awake = [standing for standing in now if standing.rests_until <= batch.step]
    counts = {pool: sum(standing.pool == pool for standing in awake) for pool in POOLS}
    return {
        **{f"curriculum/{pool}": float(count) for pool, count in counts.items()},
        "curriculum/resting": float(len(now) - len(awake)),
    }


def substitute(session: Session, batch: Batch, slot: int, attempt: int) -> str | None:
    """Replace the problem at a place of the step if its group taught nothing; the batch includes the new
    problem from here on.

    Returns None if the group taught something, if λ > 0 and the KL counts as signal, or if no problem is left.
    """
    config = session.config
    if attempt > config.learning.replacements or batch.purpose != "train":
        return None
    if not config.learning.replaces_equal_at(batch.step, len(session.weights.steps)):
        return None
    held = batch.planned[slot] if attempt == 1 else batch.substitutes[attempt - 1, slot]
    if held not in batch.quarantined and has_signal(batch, held):
        return None
    if batch.candidates is None:
        batch.candidates = _candidates(session, batch)
    found = replacement(batch.candidates, slot, len(batch.planned), attempt)
    if found is not None:
        batch.add_substitute(slot, attempt, found)
    return found


def _candidates(session: Session, batch: Batch) -> list[str]:
    config = session.config
    if config.curriculum.order != "pools":
        usable = [problem.id for problem in session.usable(session.loaded.train)]
        return replacement_candidates(usable, batch.planned, batch.step, config.run.seed)
    standings = standings_at(session, batch.policy_step)
    others = {
        problem_id: standing
        for problem_id, standing in standings.items()
        if problem_id not in batch.planned
    }
    rng = random.Random(f"replacement/{config.run.seed}/{batch.step}")
    count = len(batch.planned) * config.learning.replacements
    return draw(others, batch.step, count, rng, config.curriculum.pool_weights)
