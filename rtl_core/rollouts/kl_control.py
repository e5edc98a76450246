"""λ of each step of a run."""

from __future__ import annotations

from rtl_core.learning.kl_weight import controlled_weight
from rtl_core.run.session import Session

_LAST = """
SELECT w.value AS weight, k.value AS kl FROM step_metrics w JOIN step_metrics k USING (run, step)
WHERE run = ? AND step < ? AND w.name = 'learning/kl_weight' AND k.name = 'teacher_kl' ORDER BY step DESC LIMIT 1
"""


def kl_weight_of(session: Session, step: int) -> float:
    """λ of a step that is about to be trained, all steps before it being recorded.

    Held to a target it follows from the λ and the KL that the history has of the last step, so that a resumed run goes on with
    the controller as it was.
    """
    learning = session.config.learning
    if learning.kl_schedule != "target":
        return learning.kl_weight_at(step, len(session.steps))
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
