"""Which saved weights of a run are kept: what nobody needs any more is deleted on the backend, the final ones never expire.

A step saves two things: the full state, to go on from, and the frozen copy to sample from. What stays of both: the newest `keep_last`
steps, every `keep_every`-th, the `keep_best` with the best held-out pass@1, the newest of all, which in the end is the final one, and the
weights after a warm start that score as their own teacher.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rtl_core.config import RunConfig
from rtl_core.errors import InfrastructureError, PolicyError, WeightsGoneError
from rtl_core.history.records import EvaluationRecord, StepState
from rtl_core.observe.progress import progress
from rtl_core.reporting.evaluations import own_evaluations
from rtl_core.reporting.text import counted
from rtl_core.run.session import Session
from rtl_core.run.stopping import is_transient


@dataclass(frozen=True)
class Retention:
    """What is kept; 0 means none of that kind."""

    keep_last: int = 3
    keep_best: int = 1
    keep_every: int = 0
    also: frozenset[int] = frozenset()
    """Steps that are kept in any case."""


def kept(trained: Sequence[StepState], evaluations: Sequence[EvaluationRecord], retention: Retention) -> set[int]:
    """Steps whose weights are kept, out of those that are trained.

    `evaluations` are the run's own (`own_evaluations`). An evaluation after n train steps is one of the weights that step n − 1 left. Among
    equals the earlier is the better.
    """
    steps = sorted(state.step for state in trained)
    if not steps:
        return set()
    keep = {steps[-1], *steps[-retention.keep_last :]} if retention.keep_last else {steps[-1]}
    if retention.keep_every:
        keep |= {step for step in steps if (step + 1) % retention.keep_every == 0}
    return keep | (retention.also & set(steps)) | set(best(trained, evaluations, retention.keep_best))


def best(
    trained: Sequence[StepState], evaluations: Sequence[EvaluationRecord], most: int
) -> dict[int, EvaluationRecord]:
    """Step -> the evaluation of its weights: the `most` steps with the highest pass@1, the best first.

    What decides is the mean over all held-out problems: of several sources together, the larger source counting more.
    """
    steps = {state.step for state in trained}
    scored = [
        (-evaluation.pass_at_1, evaluation.step - 1, evaluation.key, evaluation)
        for evaluation in evaluations
        if evaluation.policy == "student" and evaluation.status == "done" and evaluation.pass_at_1 is not None
    ]
    found: dict[int, EvaluationRecord] = {}
    for _, step, _, evaluation in sorted(scored, key=lambda row: row[:3]):
        if step in steps and len(found) < most:
            found.setdefault(step, evaluation)
    return found


def retention_of(config: RunConfig) -> Retention:
    """What the configuration says is kept, and the weights that score for as long as the run trains."""
    section, learning = config.checkpoints, config.learning
    scores = learning.self_taught and learning.self_weights == "start"
    also = frozenset({learning.warm_start_steps - 1}) if scores else frozenset()
    return Retention(section.keep_last, section.keep_best, section.keep_every, also)


async def tidy(session: Session) -> None:
    """Delete the weights that no rule keeps.

    Nothing depends on it: what fails is told and tried again after the next step.
    """
    with session.history.reading():
        trained = session.history.trained_steps(session.run)
        evaluations = own_evaluations(session.history, session.run)
    stay = kept(trained, evaluations, retention_of(session.config)) | session.weights.tidied
    old = [state for state in trained if state.step not in stay]
    if not old:
        return
    try:
        await session.policy.backend.delete(_paths(old))
    except (PolicyError, InfrastructureError, ConnectionError, TimeoutError) as error:
        progress.get().line(f"old weights could not be deleted: {error}")
    else:
        session.weights.tidied |= {state.step for state in old}


async def secure(session: Session) -> None:
    """At the end of a run: tidy up, and take the expiry from the weights that stay as its result (the last, the best)."""
    await tidy(session)
    trained = session.history.trained_steps(session.run)
    retention = Retention(keep_last=1, keep_best=session.config.checkpoints.keep_best)
    evaluations = own_evaluations(session.history, session.run)
    keep = kept(trained, evaluations, retention)
    for step, evaluation in best(trained, evaluations, retention.keep_best).items():
        sources = sorted({problem.source for problem in session.loaded.heldout})
        of = f"{' and '.join(sources)} together" if len(sources) > 1 else "".join(sources)
        progress.get().line(
            f"kept as the best: the weights after {counted(step + 1, 'step')}, by pass@1 {evaluation.pass_at_1:.3f} on the"
            f" {counted(evaluation.n_problems, 'held-out problem')} of {of} (checkpoints.keep_best)"
        )
    for state in (state for state in trained if state.step in keep):
        name = f"the weights after {counted(state.step + 1, 'step')}"
        try:
            await session.policy.backend.keep(_paths([state]))
        except WeightsGoneError as error:
            progress.get().line(f"{name} are not on the service any more: {error}")
        except Exception as error:
            if not is_transient(error):
                raise
            progress.get().line(f"the expiry of {name} could not be lifted: {error}")


def _paths(states: Iterable[StepState]) -> list[str]:
    return [path for state in states for path in (state.state_path, state.sampler_path) if path]
