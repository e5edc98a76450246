"""Configuration keys that often change from run to run, as a form with optional, validated fields.

They override the configuration file. Other keys go through `overrides`, as with `--set`.
"""

from __future__ import annotations

import json

from pydantic import BaseModel, ConfigDict, Field


class Options(BaseModel):
    """Changes to the configuration for this run. An empty field keeps the configuration's value."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)
    run_name: str | None = Field(
        default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$", title="run.name"
    )
    """Name of the run. Running the same name again resumes it where it stopped."""
    run_seed: int | None = Field(default=None, ge=0, lt=1 << 63, title="run.seed")
    """Seed for splits, order, sampling and LoRA initialisation."""
    run_epochs: int | None = Field(default=None, ge=1, title="run.epochs")
    """Number of passes over the training problems."""
    curriculum_problems_per_step: int | None = Field(
        default=None, ge=1, title="curriculum.problems_per_step"
    )
    """Problems in each train step."""
    sampling_group_size: int | None = Field(default=None, ge=1, title="sampling.group_size")
    """Rollouts per problem and step."""
    learning_kl_weight: float | None = Field(default=None, ge=0, title="learning.kl_weight")
    """λ: weight of the per-token reverse KL to the teacher. 0: RL only."""
    learning_learning_rate: float | None = Field(
        default=None, gt=0, title="learning.learning_rate"
    )
    """Adam's learning rate."""
    evaluation_every: int | None = Field(default=None, ge=0, title="evaluation.every")
    """Evaluate every n steps, in addition to before and after training. 0: only before and after."""
    cost_budget_usd: float | None = Field(default=None, gt=0, title="cost.budget_usd")
    """Stop before a step that would raise the run's total cost above this, in US dollars."""
    cost_budget_hours: float | None = Field(default=None, gt=0, title="cost.budget_hours")
    """Stop after this many hours. The next trigger resumes the run with a new budget of as many hours."""

    def as_overrides(self) -> list[str]:
        """Return the changes as `section.key=value` texts for `load_config`."""
        return [
            f"{field.title}={json.dumps(getattr(self, name))}"
            for name, field in type(self).model_fields.items()
            if getattr(self, name) is not None
        ]


NO_OPTIONS = Options()
