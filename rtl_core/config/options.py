"""The keys of a configuration that one changes from run to run, as a form: each optional, with its bounds.

What is given wins over the configuration's file. Everything else goes through `overrides`, as `--set` does.
"""

from __future__ import annotations

import json

from pydantic import BaseModel, ConfigDict, Field


class Options(BaseModel):
    """What to change in the configuration for this run. Left empty, the configuration's own value holds."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)
    run_name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$", title="run.name")
    """Name of the run. Running the same name again resumes it where it stopped."""
    run_seed: int | None = Field(default=None, ge=0, lt=1 << 63, title="run.seed")
    """Seed of everything that is random and ours."""
    run_epochs: int | None = Field(default=None, ge=1, title="run.epochs")
    """How often the training problems are gone through."""
    curriculum_problems_per_step: int | None = Field(default=None, ge=1, title="curriculum.problems_per_step")
    """Problems in each train step."""
    sampling_group_size: int | None = Field(default=None, ge=1, title="sampling.group_size")
    """Rollouts per problem and step."""
    learning_kl_weight: float | None = Field(default=None, ge=0, title="learning.kl_weight")
    """λ: weight of the per-token reverse KL to the teacher; 0 is RL alone."""
    learning_learning_rate: float | None = Field(default=None, gt=0, title="learning.learning_rate")
    """Adam's learning rate."""
    evaluation_every: int | None = Field(default=None, ge=0, title="evaluation.every")
    """Evaluate every so many steps as well as before and after; 0 for only those."""
    cost_budget_usd: float | None = Field(default=None, gt=0, title="cost.budget_usd")
    """Stop before the step that would make the whole run dearer than this, in US dollars."""
    cost_budget_hours: float | None = Field(default=None, gt=0, title="cost.budget_hours")
    """Stop after so many hours; the next trigger goes on with as many again."""

    def as_overrides(self) -> list[str]:
        """`section.key=value` texts, as `load_config` takes them."""
        return [
            f"{field.title}={json.dumps(getattr(self, name))}"
            for name, field in type(self).model_fields.items()
            if getattr(self, name) is not None
        ]


NO_OPTIONS = Options()
