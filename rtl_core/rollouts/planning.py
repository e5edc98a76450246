"""The plan of a run: which problems each step takes and which weights sample it; written once and read again on resume.

With pools, the problems of a step are drawn by measured pass rates before it is sampled; problems that
teach nothing are replaced. Everything follows from the history, the configuration and the seed, so that a
resumed run draws the same problems.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from rtl_core.backend.base import Checkpoint
from rtl_core.config import RunConfig
from rtl_core.errors import PolicyError, ProblemError
from rtl_core.history.records import PlacedProblem, StepPlan, StepState
from rtl_core.history.store import History
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
from rtl_core.learning.pools import POOLS, GroupResult, Standing, draw
from rtl_core.rollouts.batch import Batch, open_batch
from rtl_core.rollouts.datums import has_signal
from rtl_core.run.folder import command_for
from rtl_core.run.session import Session
from rtl_core.types.rollout import PolicyName
from rtl_grader.progress import log_line
from rtl_grader.types.problem import Problem

STEPS_AHEAD = 2
"""Number of further steps whose problems are validated while one is prepared."""
_GROUPS = """
SELECT r.step, r.problem_id, count(*) FILTER (WHERE v.outcome = 'passed') AS passed,
    CASE WHEN count(v.rollout) = count(*) THEN count(*) ELSE 0 END AS graded -- an incomplete group was quarantined
FROM rollouts r LEFT JOIN verdicts v USING (rollout)
WHERE r.run = ? AND r.purpose = 'train' AND r.step < ?
GROUP BY r.step, r.problem_id
"""
_MEASURED = """
SELECT r.problem_id, avg(CAST(v.outcome = 'passed' AS INTEGER)) FILTER (WHERE r.policy = 'student') AS student,
    avg(CAST(v.outcome = 'passed' AS INTEGER)) FILTER (WHERE r.policy = 'teacher') AS teacher
FROM rollouts r JOIN verdicts v USING (rollout) WHERE r.run = ? AND r.purpose = 'measurement' GROUP BY ALL
"""


async def plan_run(session: Session) -> int:
    """Record the order of problems and a plan for every epoch without one. Returns the total number of steps.

    Raises:
        ProblemError: no problem is fit to train on, none is held out, or none has an answer to imitate.
    """
    config, history, recorder = session.config, session.history, session.recorder
    train, heldout = session.train, session.heldout
    for use, problems in (("train on", train), ("evaluate on", heldout)):
        if not problems:
            raise unfit_error(session, use)
    planned = history.steps(session.run)
    epochs = {state.epoch for state in planned}
    missing = [epoch for epoch in range(config.run.epochs) if epoch not in epochs]
    if missing:
        rates = measured_rates(history, session.run)
        ordered = order_problems(train, config.curriculum.order, config.run.seed, rates)
        rows: list[PlacedProblem] = [
            (problem, "train", place) for place, problem in enumerate(ordered)
        ]
        rows += [(problem, "heldout", None) for problem in heldout]
        rows += [
            (session.problems[problem_id], "excluded", None) for problem_id in session.unfit
        ]
        await recorder.call(history.place_problems, session.run, rows)
        step = 1 + max((state.step for state in planned), default=-1)
        for epoch in missing:
            plans = _plan_epoch(config, ordered, epoch, step)
            await recorder.call(history.plan_epoch, session.run, epoch, plans)
            step += len(plans)
    _load_progress(session)
    return len(session.weights.steps)


def _plan_epoch(
    config: RunConfig, ordered: Sequence[Problem], epoch: int, first: int
) -> list[StepPlan]:
    """Return the steps of an epoch over the problems in their order; the first step has the number `first`.

    Raises:
        ProblemError: no problem has an answer to imitate, and the configuration needs one.
    """
    learning, ids, imitable = config.learning, [problem.id for problem in ordered], None
    if learning.imitates_golden:
        imitable = {problem.id for problem in ordered if problem.has_whole_golden}
        if not imitable:
            raise ProblemError(
                "supervised steps imitate known-good answers, and no problem that is fit to train on has one",
                'set learning.warm_start_source = "teacher" or "endpoint"',
            )
    sizes = config.step_sizes(len(ids), first)
    supervised = max(0, learning.warm_start_steps - first)
    order, seed = config.curriculum.order, config.run.seed
    groups = plan_epoch(ids, sizes, epoch, seed, order, supervised, imitable)
    return [
        StepPlan(step=step, problem_ids=tuple(group))
        for step, group in enumerate(groups, first)
    ]


def _load_progress(session: Session) -> None:
    """Set the session's steps and weights from the history. Steps that were trained before `run.epochs` was lowered
    count: their weights are the run's result."""
    epochs, weights = session.config.run.epochs, session.weights
    weights.steps = [
        state
        for state in session.history.steps(session.run)
        if state.epoch < epochs or state.status == "trained"
    ]
    trained = [state for state in weights.steps if state.status == "trained"]
    if trained and (done := trained[-1].epoch + 1) > epochs:
        log_line(
            f"run.epochs is {epochs}; the run has been trained in epoch {done} already, so no step is left"
        )
    for state in trained:
        if state.sampler_path:
            weights.sampler_paths[state.step + 1] = state.sampler_path
    if trained and trained[-1].state_path and trained[-1].sampler_path:
        weights.checkpoint = Checkpoint(trained[-1].state_path, trained[-1].sampler_path)


def remaining_steps(
    config: RunConfig, steps: Iterable[StepState], epoch: int
) -> list[list[StepState]]:
    """The steps of an epoch that were not trained when the run was opened: supervised ones, then the others.

    Each part is a list; the first must end before the second starts.
    """
    left = [state for state in steps if state.epoch == epoch and state.status == "planned"]
    return [
        list(part) for _, part in groupby(left, lambda state: is_warm_start(config, state.step))
    ]


def is_warm_start(config: RunConfig, step: int) -> bool:
    """Whether a step is one of the supervised steps at the start of the run."""
    return step < config.learning.warm_start_steps


def next_problems(steps: Iterable[StepState], after: int) -> list[str]:
    """Problems of the `STEPS_AHEAD` planned steps after step `after`, if they have been drawn."""
    planned = [state for state in steps if state.status == "planned" and state.step > after]
    return [problem_id for state in planned[:STEPS_AHEAD] for problem_id in state.problem_ids]


def policy_step(config: RunConfig, steps: Iterable[StepState], state: StepState) -> int:
    """Number of train steps in the weights that sample this step: `learning.staleness` fewer than precede
    it, but at least those before its epoch and those of the warm start, since neither overlaps with later
    steps.

    The number does not depend on when the step is sampled, so that a resumed run samples from the same weights.
    """
    first = min(other.step for other in steps if other.epoch == state.epoch)
    learning = config.learning
    warm = learning.warm_start_steps if state.step >= learning.warm_start_steps else 0
    return max(first, warm, state.step - learning.staleness)


async def batch_of(
    session: Session,
    state: StepState,
    validated: Callable[[Sequence[str]], Awaitable[None]] | None = None,
) -> Batch:
    """Return the batch of a planned train step, with the results that the history already holds.

    With pools, the problems of an RL step are drawn and recorded now; so are replacements of planned
    problems that turn out unfit.

    Args:
        validated: waits until problems are validated; unfit ones are then in `session.unfit`. None: all are
            validated already.

    Raises:
        PolicyError: the weights that should sample it are not in the history.
        ProblemError: no problem is fit.
    """
    step, config, weights = state.step, session.config, session.weights
    n_trained = policy_step(config, weights.steps, state)
    problem_ids: tuple[str, ...] = ()
    while not problem_ids or any(problem_id in session.unfit for problem_id in problem_ids):
        problem_ids = (
            planned_step(session, state)
            if state.problem_ids
            else draw_step(session, step, n_trained)
        )
        if not problem_ids:
            raise unfit_error(session, "train on")
        # Before the await: the next step is drawn knowing this one.
        place = next(i for i, other in enumerate(weights.steps) if other.step == step)
        weights.steps[place] = state.model_copy(update={"problem_ids": problem_ids})
        if validated is not None:
            await validated(problem_ids)
    if problem_ids != state.problem_ids:
        plan = StepPlan(step=step, problem_ids=problem_ids)
        await session.recorder.call(session.history.plan_step, session.run, plan)
    warm = is_warm_start(config, step)
    if n_trained and not warm and n_trained not in weights.sampler_paths:
        raise PolicyError(
            f"step {step} must be sampled from the weights after {n_trained} steps, which are not in the history",
            "set learning.staleness = 0 with --accept-changes",
        )
    batch = Batch(
        purpose="warm_start" if warm else "train",
        sampler=_warm_start_sampler(config) if warm else "student",
        epoch=state.epoch,
        step=step,
        policy_step=n_trained,
        problem_ids=problem_ids,
        group_size=config.warm_start_group if warm else config.sampling.group_size,
        sampler_path=None if warm else weights.sampler_paths.get(n_trained),
        algorithms=_own_algorithms(session),
    )
    return open_batch(session.history, session.run, batch)


def _own_algorithms(session: Session) -> dict[str, str]:
    """Mapping of problem id to algorithm, for the problems of the sources in `learning.by_source`."""
    by_source, problems = session.config.learning.by_source, session.problems.values()
    return {p.id: by_source[p.source] for p in problems if p.source in by_source}


def _warm_start_sampler(config: RunConfig) -> PolicyName:
    return "endpoint" if config.learning.imitates_endpoint else "teacher"


def needs_answers(config: RunConfig, batch: Batch) -> bool:
    """Whether a step samples answers; a warm start on golden answers does not."""
    return batch.purpose != "warm_start" or config.learning.warm_start_source != "golden"


def needs_scores(config: RunConfig, batch: Batch, steps: int) -> bool:
    """Whether the teacher scores the answers of a step, of `steps` in all."""
    return batch.purpose == "train" and config.learning.uses_kl_at(batch.step, steps)


def score_reads_verdicts(config: RunConfig) -> bool:
    """Whether a group must be graded before it is scored; otherwise both run concurrently."""
    return config.learning.self_taught and config.learning.self_hint == "verdict"


def measurements(session: Session) -> Iterator[Batch]:
    """Yield the batches that measure pass rates on the training problems before the first step; none once
    the run has a plan."""
    samples = session.config.curriculum.measure_samples
    if not samples or session.history.steps(session.run):
        return
    paths: dict[PolicyName, str | None] = {"student": session.weights.sampler_paths.get(0)}
    if session.config.tinker.teacher:
        paths["teacher"] = None
    for policy, path in paths.items():
        batch = Batch(
            purpose="measurement",
            sampler=policy,
            epoch=-1,
            step=0,
            policy_step=0,
            problem_ids=tuple(problem.id for problem in session.train),
            group_size=samples,
            sampler_path=path,
        )
        yield open_batch(session.history, session.run, batch)


def measured_rates(history: History, run: str) -> dict[str, MeasuredRates]:
    """Mapping of problem id to pass rates measured before the first step; empty when nothing was measured."""
    rows = history.rows(_MEASURED, [run])
    return {row.pop("problem_id"): MeasuredRates(**row) for row in rows}


def standings_at(session: Session, policy_step: int) -> dict[str, Standing]:
    """Standing of every usable training problem, from the groups of the steps before `policy_step`. These
    are trained and final."""
    rules, rates = session.config.curriculum, measured_rates(session.history, session.run)
    start = {
        problem.id: first_pool(problem, rates.get(problem.id, UNMEASURED), rules)
        for problem in session.train
    }
    rows = session.history.rows(_GROUPS, [session.run, policy_step])
    return pools.standings(start, [GroupResult(**row) for row in rows], rules)


def unfit_error(session: Session, use: str) -> ProblemError:
    """Return the error for a run without a usable problem; `use` says what for."""
    reasons = sorted(set(session.unfit.values()))[:5]
    return ProblemError(
        f"no problem is fit to {use}: {'; '.join(reasons)}",
        f"see {command_for(session.config, 'query validation --run')}",
    )


def planned_step(session: Session, state: StepState) -> tuple[str, ...]:
    """Return the problems of a planned step. A problem that has become unfit is replaced by its neighbour
    in the curriculum; empty if none is fit."""
    if not any(problem_id in session.unfit for problem_id in state.problem_ids):
        return state.problem_ids
    config, train = session.config, session.loaded.train
    usable = session.train
    if config.learning.imitates_golden and is_warm_start(config, state.step):
        usable = [problem for problem in usable if problem.has_whole_golden]
    rates = measured_rates(session.history, session.run)
    ordered = order_problems(train, config.curriculum.order, config.run.seed, rates)
    ids, usable_ids = [problem.id for problem in ordered], {problem.id for problem in usable}
    return tuple(fill_places(state.problem_ids, ids, usable_ids))


def draw_step(session: Session, step: int, policy_step: int) -> tuple[str, ...]:
    """Draw the problems of a step from the pools. Problems of steps in progress count as seen, although
    they have no results yet. Empty if none is fit."""
    config, now = session.config, standings_at(session, policy_step)
    for state in session.weights.steps:
        if policy_step <= state.step < step:
            for problem_id in now.keys() & state.problem_ids:
                now[problem_id] = replace(now[problem_id], last_step=state.step)
    rng = random.Random(f"pools/{config.run.seed}/{step}")
    size = config.problems_of_step(step)
    return tuple(draw(now, step, size, rng, config.curriculum.pool_weights))


def pool_metrics(session: Session, batch: Batch) -> dict[str, float]:
    """Number of problems in each pool when a step was drawn, and of resting ones; empty without pools."""
    if session.config.curriculum.order != "pools":
        return {}
    now = standings_at(session, batch.policy_step).values()
    awake = Counter(standing.pool for standing in now if standing.rests_until <= batch.step)
    metrics = {f"curriculum/{pool}": float(awake[pool]) for pool in POOLS}
    return {**metrics, "curriculum/resting": float(len(now) - awake.total())}


def substitute(session: Session, batch: Batch, slot: int, attempt: int) -> str | None:
    """Replace the problem at a place of the step if its group taught nothing; the batch includes the new
    problem from here on.

    Returns None if the group taught something, if λ > 0 and the KL counts as signal, or if no problem is left.
    """
    learning = session.config.learning
    if attempt > learning.replacements or batch.purpose != "train":
        return None
    if not learning.replaces_equal_at(batch.step, len(session.weights.steps)):
        return None
    current = batch.planned[slot] if attempt == 1 else batch.substitutes[attempt - 1, slot]
    if current not in batch.quarantined and has_signal(batch, current):
        return None
    if batch.candidates is None:
        batch.candidates = _candidates(session, batch)
    problem_id = replacement(batch.candidates, slot, len(batch.planned), attempt)
    if problem_id is not None:
        batch.add_substitute(slot, attempt, problem_id)
    return problem_id


def _candidates(session: Session, batch: Batch) -> list[str]:
    config = session.config
    if config.curriculum.order != "pools":
        ids = [problem.id for problem in session.train]
        return replacement_candidates(ids, batch.planned, batch.step, config.run.seed)
    others = standings_at(session, batch.policy_step)
    for problem_id in batch.planned:
        others.pop(problem_id, None)
    rng = random.Random(f"replacement/{config.run.seed}/{batch.step}")
    count = len(batch.planned) * config.learning.replacements
    return draw(others, batch.step, count, rng, config.curriculum.pool_weights)
