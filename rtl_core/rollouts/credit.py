"""The credit of a group's answers in a train step: computed once, when the group is graded, recorded, and read by all that follows."""

from __future__ import annotations

from rtl_core.algorithms.base import Algorithm, Group, chosen, credit_of
from rtl_core.algorithms.warm_start import WarmStart
from rtl_core.config import RunConfig
from rtl_core.learning.credit import Credit
from rtl_core.rollouts.batch import Batch
from rtl_core.run.session import Session


def algorithm_of(config: RunConfig, batch: Batch) -> Algorithm:
    """The algorithm that a batch is trained by: that of the run, or the warm start's."""
    return WarmStart(config) if batch.purpose == "warm_start" else chosen(config)(config)


def credit_group(session: Session, batch: Batch, problem_id: str) -> None:
    """Credit the answers to one problem of a train step, in all turns, and record it. Quarantined problems get none.

    Raises:
        RuntimeError: an answer has no verdict.
    """
    if batch.purpose in ("train", "warm_start") and problem_id not in batch.quarantined:
        algorithm = algorithm_of(session.config, batch)
        for turn in (batch, *batch.later.values()):
            session.recorder.put("record_advantages", credited(turn, problem_id, algorithm))


def credited(batch: Batch, problem_id: str, algorithm: Algorithm) -> list[tuple[str, Credit]]:
    """Credit the answers to one problem in one turn; returns (rollout key, credit) of each."""
    group, before = batch.group(problem_id), batch.before
    if not group:
        return []
    parents = None if before is None else [before.rollouts[problem_id, one.rollout.sample] for one in group]
    found = algorithm.credit(Group(group, parents)).answers()
    for stored, one in zip(group, found, strict=True):
        batch.update(stored, credit=one)
    return [(stored.rollout.key, one) for stored, one in zip(group, found, strict=True)]


def has_signal(batch: Batch, problem_id: str) -> bool:
    """Whether the rewards of a credited group teach anything: some advantage is not 0."""
    return any(credit_of(stored).advantage for stored in batch.group(problem_id))
