"""Where a run's metrics go besides its own history."""

from __future__ import annotations

from pydantic import Field

from rtl_core.types.section import Section


class TrackingSection(Section):
    wandb_project: str | None = Field(default=None, min_length=1)
    """Also send every step's metrics to this project of Weights & Biases (extra `wandb`); its own variables say to whom and
    how: WANDB_API_KEY, WANDB_ENTITY, WANDB_MODE=offline."""
