"""The credit of a group's answers in a train step: computed once, when the group is graded, recorded, and read by all that follows."""

from __future__ import annotations

from rtl_core.config import RunConfig
from rtl_core.history.records import StoredRollout
from rtl_core.learning.credit import Credit, credit
from rtl_core.pipeline.batch import Batch
from rtl_core.pipeline.session import Session


def credit_group(session: Session, batch: Batch, problem_id: str) -> None:
    """Credit the answers to one problem of a train step, in all turns, and record it. Quarantined problems get none.

    Raises:
        RuntimeError: an answer has no verdict.
    """
    if batch.purpose == "train" and problem_id not in batch.quarantined:
        for turn in (batch, *batch.later.values()):
            session.recorder.put("record_advantages", credited(turn, problem_id, session.config))


def credited(batch: Batch, problem_id: str, config: RunConfig) -> list[tuple[str, Credit]]:
    """Credit the answers to one problem in one turn; returns (rollout key, credit) of each."""
    group, learning = batch.group(problem_id), config.learning
    before = batch.before
    found = credit(
        [_earned(stored) for stored in group],
        [len(stored.rollout.tokens_T) for stored in group],
        [stored.rollout.stop_reason == "length" for stored in group],
        None if before is None else [_earned(before.rollouts[problem_id, one.rollout.sample]) for one in group],
        limit=config.sampling.max_tokens,
        truncated=learning.truncated,
        penalty=learning.overlong_penalty,
        buffer=learning.overlong_buffer,
        improvement_weight=config.refinement.improvement_weight,
        baseline=learning.baseline,
        normalise_std=learning.normalise_std,
        reward_weight=learning.reward_weight,
    ).answers()
    for stored, one in zip(group, found, strict=True):
        batch.update(stored, credit=one)
    return [(stored.rollout.key, one) for stored, one in zip(group, found, strict=True)]


def credit_of(stored: StoredRollout) -> Credit:
    """The credit of an answer. RuntimeError when its group was not credited."""
    if stored.credit is None:
        raise RuntimeError(f"{stored.rollout.key} has no credit; it must not be trained on")
    return stored.credit


def has_signal(batch: Batch, problem_id: str) -> bool:
    """Whether the rewards of a credited group teach anything: some advantage is not 0."""
    return any(credit_of(stored).advantage for stored in batch.group(problem_id))


def _earned(stored: StoredRollout) -> float:
    if stored.reward is None:
        raise RuntimeError(f"{stored.rollout.key} has no verdict; it must not be trained on, nor what follows it")
    return stored.reward.total
