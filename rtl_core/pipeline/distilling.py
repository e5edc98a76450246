"""λ of each step of a run, and whether a step needs the teacher's scores."""

from __future__ import annotations

from rtl_core.config.learning import LearningSection
from rtl_core.learning.kl_weight import controlled_weight, scheduled_weight
from rtl_core.pipeline.session import Session

_LAST = """
SELECT w.value AS weight, k.value AS kl FROM step_metrics w JOIN step_metrics k USING (run, step)
WHERE run = ? AND step < ? AND w.name = 'learning/kl_weight' AND k.name = 'teacher_kl' ORDER BY step DESC LIMIT 1
"""


def may_charge(session: Session, step: int) -> bool:
    """Whether λ of a step is above 0; known before anything of it is sampled."""
    learning = session.config.learning
    if learning.kl_schedule == "target":
        return True
    return _scheduled(session, step) > 0


def kl_weight_of(session: Session, step: int) -> float:
    """λ of a step that is about to be trained, all steps before it being recorded.

    Held to a target it follows from the λ and the KL that the history has of the last step, so that a resumed run goes on with
    the controller as it was.
    """
    learning = session.config.learning
    if learning.kl_schedule != "target":
        return _scheduled(session, step)
    assert learning.kl_target is not None, "the configuration was checked"
    before = session.history.query(_LAST, [session.run, step]).to_pylist()
    if not before:
        return learning.kl_weight
    lowest, highest = learning.kl_weight_bounds
    return controlled_weight(
        before[0]["weight"],
        before[0]["kl"],
        learning.kl_target,
        gain=learning.kl_gain,
        lowest=lowest,
        highest=highest,
    )


def replaces_equal(learning: LearningSection, charged: bool) -> bool:
    """Whether a group of equal rewards gives its place to another problem, in a step where the KL is charged or is not."""
    return not charged or (learning.replace_with_kl and learning.reward_weight > 0)


def _scheduled(session: Session, step: int) -> float:
    learning = session.config.learning
    return scheduled_weight(
        step,
        len(session.steps),
        learning.kl_weight,
        learning.final_kl_weight,
        learning.kl_schedule,
        learning.kl_schedule_part,
    )
