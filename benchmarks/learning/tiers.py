"""What is trained, and on which problems it is judged: the tiny models on the two tiers of the starter set, and a pretrained model."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from rtl_core import pretrained
from rtl_core.problems.starter import spec
from rtl_core.tinymodels import ModelName, model_path

BASE = str(Path(__file__).with_name("base.toml"))
TierName = Literal["hard", "starter", "smollm2"]


@dataclass(frozen=True)
class Tier:
    """What all cells of a tier share."""

    title: str
    student: str
    teacher: str | None
    """None: the student is its own teacher."""
    problems: spec.Tier
    test_problems: int
    """A multiple of the families: 18 of the starter problems, 7 of the hard ones."""
    goals: tuple[float, float]
    """Pass rates in training whose first step is told."""
    base: str = BASE
    """The configuration with which the untrained models are judged."""
    overrides: tuple[str, ...] = ()
    """Keys of that configuration."""

    @property
    def weights(self) -> list[str]:
        """SHA-256 of the models: of their weights, or of the package that they come from. In the order of the models' names."""
        return [_sha256(name) for name in sorted(filter(None, (self.student, self.teacher)))]


TIERS: dict[TierName, Tier] = {
    "hard": Tier("Hard tier", "hard-student", "hard-teacher", "hard", 70, (0.3, 0.5)),
    "starter": Tier("Starter tier", "student", "teacher", "starter", 72, (0.7, 0.85)),
    "smollm2": Tier(
        "SmolLM2-135M on the starter tier",
        "SmolLM2-135M-Instruct",
        None,
        "starter",
        36,
        (0.1, 0.2),
        "smollm2",
        ("problems.sources.0.train=8",),  # its cells validate their own
    ),
}
"""In the order of the report."""


def _sha256(model: str) -> str:
    if model in pretrained.MODELS:
        return pretrained.MODELS[model].wheel_sha256
    return hashlib.sha256((model_path(cast(ModelName, model)) / "model.safetensors").read_bytes()).hexdigest()
