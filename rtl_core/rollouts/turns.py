"""Refinement: further turns in which the model sees what compiler and tests said of its answer.

Every answer that failed gets one further answer in the next turn (its child), up to `refinement.turns`. The children of a batch's
answers are a batch of their own, so grading, scoring and recording are those of any batch; single-shot figures do not change.
Each turn is a group of its own with its own credit (learning/credit.py): a later one's reward counts its improvement, too. No credit
for a child's success goes to its parent.
"""

from __future__ import annotations

import asyncio

import numpy as np

from rtl_core.history.records import StoredRollout
from rtl_core.prompting.refinement import build_refinement
from rtl_core.rollouts import batch as batches
from rtl_core.rollouts import scoring
from rtl_core.rollouts.batch import Batch
from rtl_core.rollouts.planning import needs_scores
from rtl_core.run.session import Session
from rtl_core.types.rollout import Rollout


def open_turn(session: Session, batch: Batch, turn: int) -> Batch:
    """The batch of a later turn (2, 3), under its parent's key, with what the history holds of it."""
    known = batch.later.get(turn)
    if known is None:
        known = batch.later[turn] = batches.open_batch(
            session,
            Batch(
                purpose="refinement",
                evaluation=batch.evaluation,
                epoch=batch.epoch,
                step=batch.step,
                policy_step=batch.policy_step,
                problem_ids=batch.problem_ids,
                group_size=batch.group_size,
                sampler=batch.sampler,
                sampler_path=batch.sampler_path,
                before=batch if turn == 2 else open_turn(session, batch, turn - 1),
                clock=batch.clock,
            ),
        )
    known.problem_ids = batch.problem_ids  # a step may take in other problems while it is under way
    return known


def parents(batch: Batch, turn: int, problem_id: str) -> list[StoredRollout]:
    """The answers of the turn before that failed."""
    before = batch if turn == 2 else batch.later.get(turn - 1)
    group = before.group(problem_id) if before is not None else []
    return [stored for stored in group if stored.verdict is not None and not stored.verdict.passed]


async def sample_turn(session: Session, batch: Batch, turn: int, problem_id: str) -> int:
    """Sample the children that are missing of one group; returns how many were sampled."""
    later, config = open_turn(session, batch, turn), session.config
    fresh = [p for p in parents(batch, turn, problem_id) if (problem_id, p.rollout.sample) not in later.rollouts]
    section = config.refinement

    async def one(parent: StoredRollout) -> Rollout | None:
        assert parent.verdict is not None
        prompt = build_refinement(
            session.problems[problem_id],
            session.prompts[problem_id],
            parent.rollout.text,
            parent.verdict,
            session.policy.chat,
            style=section.style,
            most_chars=section.feedback_chars,
            max_tokens=session.policy.prompt_limit,
        )
        if prompt is None:
            return None
        sample = parent.rollout.sample
        seeds = (
            [batches.rollout_seed(config.run.seed, later.key, problem_id, sample)] if config.sampling.seeded else None
        )
        (answer,) = await batches.answers_to(session, later, problem_id, prompt.tokens_P, 1, seeds)
        return later.rollout(session.run, problem_id, sample, prompt.tokens_P, answer)

    with later.clock.measure("sample"):
        rollouts = [r for r in await asyncio.gather(*(one(parent) for parent in fresh)) if r is not None]
    later.take_up(map(StoredRollout, rollouts))
    session.recorder.put("record_rollouts", rollouts)
    return len(rollouts)


async def refine(session: Session, batch: Batch, turn: int, problem_id: str) -> int:
    """One later turn of one group, whole: sample, grade and, where the teacher's scores are trained on, score. Returns how many passed.

    Raises what grading raises (batch.py); a repeat does only what is missing.
    """
    if batch.purpose not in ("train", "evaluation") or not parents(batch, turn, problem_id):
        return 0
    await sample_turn(session, batch, turn, problem_id)
    later = batch.later[turn]
    passed = await batches.grade(session, later, problem_id)
    if needs_scores(session, batch) and later.group(problem_id):
        await scoring.score(session, later, problem_id)
    return passed


def passed_by_turn(batch: Batch) -> dict[int, dict[str, float]]:
    """Turn -> problem -> share of its answers that had passed by the end of that turn; turn 1 is single-shot pass@1."""
    passed = {place for place, stored in batch.rollouts.items() if stored.verdict is not None and stored.verdict.passed}
    rates = {1: _rates(batch, passed)}
    for turn in sorted(batch.later):
        passed |= {
            place
            for place, stored in batch.later[turn].rollouts.items()
            if stored.verdict is not None and stored.verdict.passed
        }
        rates[turn] = _rates(batch, passed)
    return rates


def _rates(batch: Batch, passed: set[tuple[str, int]]) -> dict[str, float]:
    return {p: sum(place[0] == p for place in passed) / max(len(batch.group(p)), 1) for p in batch.problem_ids}


def turn_metrics(batch: Batch) -> dict[str, float]:
    """Metrics of a step's later turns: how many answers each had, how many of them passed, and the rate by its end."""
    metrics: dict[str, float] = {}
    for turn, rates in passed_by_turn(batch).items():
        if turn == 1:
            continue
        verdicts = [s.verdict for s in batch.later[turn].rollouts.values() if s.verdict is not None]
        metrics[f"turn-{turn}/answers"] = float(len(verdicts))
        if verdicts:
            metrics[f"turn-{turn}/tests_passed"] = float(np.mean([v.passed for v in verdicts]))
        metrics[f"turn-{turn}/passed_by_then"] = float(np.mean(list(rates.values())))
    return metrics
