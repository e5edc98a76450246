"""Configuration keys that often change from run to run, as a form with optional, validated fields.

They override the configuration file. Other keys go through `overrides`, as with `--set`.
"""

from __future__ import annotations

import json
from copy import copy
from typing import Any

from pydantic import ConfigDict, create_model

from rtl_core.config.models import RunConfig

KEYS = (
    "run.name",
    "run.seed",
    "run.epochs",
    "curriculum.problems_per_step",
    "sampling.group_size",
    "learning.kl_weight",
    "learning.learning_rate",
    "evaluation.every",
    "cost.budget_usd",
    "cost.budget_hours",
)


def _field(key: str) -> tuple[Any, Any]:
    """Type and field of a key, which may be left out."""
    section, name = key.split(".")
    model: Any = RunConfig.model_fields[section].annotation
    field = copy(model.model_fields[name])
    field.title, field.default = key, None
    return field.annotation | None, field


_fields: dict[str, Any] = {key.replace(".", "_"): _field(key) for key in KEYS}
_Fields: Any = create_model("Fields", **_fields)


class Options(_Fields):  # type: ignore[misc]
    """Changes to the configuration for this run. An empty field keeps the configuration's value."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def as_overrides(self) -> list[str]:
        """Return the changes as `section.key=value` texts for `load_config`."""
        return [
            f"{field.title}={json.dumps(getattr(self, name))}"
            for name, field in type(self).model_fields.items()
            if getattr(self, name) is not None
        ]


NO_OPTIONS = Options()
