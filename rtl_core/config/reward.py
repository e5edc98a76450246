"""The configuration section `[reward]`: how verdicts are rewarded."""

from __future__ import annotations

import importlib

from pydantic import Field, ValidationInfo, field_validator

from rtl_core.config.known import refuse_unknown
from rtl_core.learning.reward import TERMS
from rtl_grader.types.section import Section


class RewardSection(Section):
    plugins: tuple[str, ...] = ()
    """Python modules with your own reward terms (see `rtl_core/learning/reward.py`). They must be
    importable wherever the run executes."""
    weights: dict[str, float] = Field(
        default_factory=lambda: {"format": 0.1, "interface": 0.2, "syntax": 0.3, "tests": 1.0}
    )
    """Weight of each reward term. Terms not listed have weight 0 and are only recorded."""

    @property
    def pays_size(self) -> bool:
        """Whether a term with a non-zero weight needs the synthesised netlist."""
        return any(weight and TERMS[name].netlist for name, weight in self.weights.items())

    @field_validator("plugins")
    @classmethod
    def _import(cls, modules: tuple[str, ...]) -> tuple[str, ...]:
        """Import each module, which registers its terms."""
        for name in modules:
            try:
                importlib.import_module(name)
            except Exception as error:
                remedy = (
                    "; install it, or add its folder to PYTHONPATH"
                    if isinstance(error, ImportError)
                    else ""
                )
                raise ValueError(
                    f"cannot import {name}: {type(error).__name__}: {error}{remedy}"
                ) from error
        return modules

    @field_validator("weights")
    @classmethod
    def _known_terms(cls, weights: dict[str, float], info: ValidationInfo) -> dict[str, float]:
        if "plugins" in info.data:  # otherwise the failed import is reported
            refuse_unknown("reward term", weights, TERMS)
        if not any(weights.values()):
            raise ValueError(
                "all reward weights are 0, so nothing would be learnt; give at least one term a weight"
            )
        return weights
