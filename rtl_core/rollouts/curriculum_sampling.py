"""Choice of a step's problems: drawn from pools by measured pass rates, and replaced when they teach nothing.

Everything follows from the history, the configuration and the seed, so that a resumed run draws the same problems.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace

from rtl_core.errors import ProblemError
from rtl_core.history.records import StepState
from rtl_core.learning import pools
from rtl_core.learning.curriculum import (
    UNMEASURED,
    MeasuredRates,
    fill_places,
    first_pool,
    order_problems,
    replacement,
    replacement_candidates,
)
from rtl_core.learning.pools import POOLS, GroupResult, PoolRules, Standing, draw
from rtl_core.rollouts.batch import Batch
from rtl_core.rollouts.datums import has_signal
from rtl_core.run.session import Session

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


def measured_rates(session: Session) -> dict[str, MeasuredRates]:
    """Mapping of problem id to pass rates measured before the first step; empty when nothing was measured."""
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for row in session.history.query(_MEASURED, [session.run]).to_pylist():
        found[row["problem_id"]][row["policy"]] = row["rate"]
    return {problem_id: MeasuredRates(**rates) for problem_id, rates in found.items()}


def standings_at(session: Session, policy_step: int) -> dict[str, Standing]:
    """Standing of every usable training problem, from the groups of the steps before `policy_step`. These are trained and final."""
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
    return ProblemError(f"no problem is fit to {use}: {'; '.join(reasons)}", "see `rtl-distill query validation`")


def planned_step(session: Session, state: StepState) -> tuple[str, ...]:
    """Return the problems of a planned step. A problem that has become unfit is replaced by its neighbour in the curriculum.

    Raises:
        ProblemError: none is fit.
    """
    if not any(problem_id in session.unfit for problem_id in state.problem_ids):
        return state.problem_ids
    config, train = session.config, session.loaded.train
    usable = session.usable(train)
    if config.learning.imitates_golden and state.step < config.learning.warm_start_steps:
        usable = [problem for problem in usable if problem.has_whole_golden]
    ordered = order_problems(train, config.curriculum.order, config.run.seed, measured_rates(session))
    found = fill_places(state.problem_ids, [problem.id for problem in ordered], {problem.id for problem in usable})
    if not found:
        raise unfit_error(session, "train on")
    return tuple(found)


def draw_step(session: Session, step: int, policy_step: int) -> tuple[str, ...]:
    """Draw the problems of a step from the pools. Problems of steps in progress count as seen, although they have no results yet.

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
    """Replace the problem at a place of the step if its group taught nothing; the batch includes the new problem from here on.

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
    others = {problem_id: standing for problem_id, standing in standings.items() if problem_id not in batch.planned}
    rng = random.Random(f"replacement/{config.run.seed}/{batch.step}")
    count = len(batch.planned) * config.learning.replacements
    return draw(others, batch.step, count, rng, config.curriculum.pool_weights)
