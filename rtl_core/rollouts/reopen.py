"""A run that was trained before, opened again to be looked at: its own configuration, its weights at any step."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from rtl_core.config import RunConfig
from rtl_core.errors import HistoryError
from rtl_core.history.records import OWN, Conditions
from rtl_core.history.store import History
from rtl_core.rollouts.evaluation import EvaluationPlan
from rtl_core.run.folder import config_of
from rtl_core.run.session import Session


def settings_of(
    path: Path,
    run: str,
    split: Literal["heldout", "test"] = "heldout",
    other: Conditions = OWN,
) -> RunConfig:
    """The configuration that a run was begun with, reading its held-out problems from `split`, with its evaluations under `other`
    conditions.

    Raises:
        HistoryError: there is no such run.
        ConfigError: a source of the run has no such split.
    """
    config = config_of(History(path, read_only=True), run)
    data = config.model_dump(mode="json")
    data["problems"]["sources"] = [source.with_split(split) for source in config.problems.sources]
    for name, value in other.model_dump(exclude_none=True).items():
        data["prompting" if name == "template" else "evaluation"][name] = value
    return RunConfig.model_validate(data)


def without_teachers(config: RunConfig) -> RunConfig:
    """The same for whoever asks the student alone: no service of a teacher need answer."""
    return config.model_copy(update={"tinker": config.tinker.model_copy(update={"teacher": None, "teachers": {}})})


def plan(
    session: Session,
    policy: Literal["student", "teacher"],
    step: int | None,
    samples: int,
    other: Conditions = OWN,
) -> EvaluationPlan:
    """The evaluation of a policy at a step; None means the newest weights. `other`: see `settings_of`.

    Raises:
        HistoryError: the run has not trained that far.
    """
    trained = session.history.trained_steps(session.run)
    step = 0 if policy == "teacher" else len(trained) if step is None else step
    if not 0 <= step <= len(trained):
        raise HistoryError(
            f"run {session.run!r} has trained {len(trained)} steps, not {step}", "choose --step within that"
        )
    begun = session.config.evaluation.weights or session.history.existing_run(session.run).start_sampler
    path = trained[step - 1].sampler_path if step else begun if policy == "student" else None
    return EvaluationPlan(policy, step, session.loaded.heldout_split, samples, path, other)
