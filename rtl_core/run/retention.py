"""Retention of a run's saved weights: weights that no rule keeps are deleted on the backend; the final ones
never expire.

A step saves the full state, to resume from, and a frozen copy, to sample from. Both are kept of the newest
`keep_last` steps, every `keep_every`-th step, the `keep_best` steps by held-out pass@1, the newest step,
and the warm start whose weights are the self-teacher.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rtl_core.config import RunConfig
from rtl_core.config.models import CheckpointsSection
from rtl_core.errors import InfrastructureError, PolicyError
from rtl_core.history.records import EvaluationRecord, StepState
from rtl_core.reporting.evaluations import own_evaluations
from rtl_core.run.session import Session
from rtl_core.run.stopping import is_transient
from rtl_grader.progress import log_line, progress
from rtl_grader.words import counted


def kept_steps(
    trained: Sequence[StepState],
    evaluations: Sequence[EvaluationRecord],
    rules: CheckpointsSection,
    also: Iterable[int] = (),
) -> set[int]:
    """Return the trained steps whose weights are kept. `also`: steps that are kept in any case.

    `evaluations` are the run's own (`own_evaluations`). An evaluation after n train steps belongs to the
    weights that step n − 1 saved. Of equal results the earlier counts as better.
    """
    steps = sorted(state.step for state in trained)
    keep = {*steps[-rules.keep_last :], *set(also).intersection(steps)}
    if rules.keep_every:
        keep |= {step for step in steps if (step + 1) % rules.keep_every == 0}
    return keep.union(best_steps(trained, evaluations, rules.keep_best))


def best_steps(
    trained: Sequence[StepState], evaluations: Sequence[EvaluationRecord], most: int
) -> dict[int, EvaluationRecord]:
    """Mapping of the `most` steps with the highest pass@1 to the evaluations of their weights, the best first.

    pass@1 is the mean over all held-out problems, so that with several sources a larger one counts more.
    """
    steps = {state.step for state in trained}
    scored = []
    for evaluation in evaluations:
        step, rate = evaluation.step - 1, evaluation.pass_at_1
        done = evaluation.policy == "student" and evaluation.status == "done"
        if done and rate is not None and step in steps:
            scored.append((-rate, step, evaluation.key, evaluation))
    best: dict[int, EvaluationRecord] = {}
    for _, step, _, evaluation in sorted(scored, key=lambda row: row[:3]):
        if len(best) < most:
            best.setdefault(step, evaluation)
    return best


def kept_in_run(
    trained: Sequence[StepState], evaluations: Sequence[EvaluationRecord], config: RunConfig
) -> set[int]:
    """Return `kept_steps` by the configured rules, with weights that are the self-teacher."""
    learning = config.learning
    scores = learning.self_taught and learning.self_weights == "start"
    also = [learning.warm_start_steps - 1] if scores else []
    return kept_steps(trained, evaluations, config.checkpoints, also)


async def delete_old_weights(session: Session) -> None:
    """Delete the weights that no rule keeps. A failure is logged and retried after the next step."""
    history, run, weights = session.history, session.run, session.weights
    with history.reading():
        trained = history.trained_steps(run)
        evaluations = own_evaluations(history, run)
    keep = kept_in_run(trained, evaluations, session.config) | weights.deleted
    old = [state for state in trained if state.step not in keep]
    if not old:
        return
    try:
        await session.policy.backend.delete(_paths(old))
    except (PolicyError, InfrastructureError, ConnectionError, TimeoutError) as error:
        log_line(f"old weights could not be deleted: {error}")
    else:
        weights.deleted |= {state.step for state in old}


async def keep_final_weights(session: Session) -> None:
    """At the end of a run, delete old weights and remove the expiry of those that are its result (the last
    and the best)."""
    await delete_old_weights(session)
    history, run, tell = session.history, session.run, progress.get()
    trained, evaluations = history.trained_steps(run), own_evaluations(history, run)
    rules = CheckpointsSection(keep_last=1, keep_best=session.config.checkpoints.keep_best)
    sources = sorted({problem.source for problem in session.loaded.heldout})
    together = " together" if len(sources) > 1 else ""
    for step, evaluation in best_steps(trained, evaluations, rules.keep_best).items():
        problems = counted(evaluation.n_problems, "held-out problem")
        tell.line(
            f"kept as the best: the weights after {counted(step + 1, 'step')}, by pass@1 "
            f"{evaluation.pass_at_1:.3f} on the {problems} of {' and '.join(sources)}{together} "
            "(checkpoints.keep_best)"
        )
    keep = kept_steps(trained, evaluations, rules)
    for state in trained:
        if state.step not in keep:
            continue
        name = f"the weights after {counted(state.step + 1, 'step')}"
        try:
            await session.policy.backend.keep(_paths([state]))
        except PolicyError as error:
            tell.line(
                f"{name} are no longer on the service, or it has no expiry to remove: {error}"
            )
        except Exception as error:
            if not is_transient(error):
                raise
            tell.line(f"the expiry of {name} could not be removed: {error}")


def _paths(states: Iterable[StepState]) -> list[str]:
    return [path for state in states for path in (state.state_path, state.sampler_path) if path]
