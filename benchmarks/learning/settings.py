"""What the matrix runs and which settings it compares: the entries of settings.toml."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.learning.tiers import BASE, TIERS, TierName
from rtl_core.config import RunConfig, load_config

STEPS = 64
PROBLEMS_PER_STEP = 8


@dataclass(frozen=True)
class Setting:
    """One way to train: the configuration `base`, the tier's models and problems, and these keys."""

    name: str
    tier: TierName
    about: str
    overrides: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0, 1, 2)
    base: str = BASE
    """A configuration file, or the name of a shipped one, whose steps and sizes are then its own."""
    after: str = ""
    """Another setting, whose cell with the same seed gives the weights to start from."""
    longer: bool = False
    """Samples more answers than RL alone does: to be compared at equal dollars, or against steps."""

    @property
    def is_shipped(self) -> bool:
        return self.base != BASE


@dataclass(frozen=True)
class Comparison:
    """What one setting is asked to add to another, in points of pass@1 at an equal budget."""

    setting: str
    against: str
    ingredient: str
    """What the first has and the second has not."""


def _setting(entry: dict[str, Any]) -> Setting:
    given: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in entry.items()}
    return Setting(**given)


_LISTED = tomllib.loads(Path(__file__).with_name("settings.toml").read_text(encoding="utf-8"))
SETTINGS: dict[str, Setting] = {entry["name"]: _setting(entry) for entry in _LISTED["setting"]}
"""Every setting by name, the first to be run first."""
COMPARISONS = tuple(Comparison(**entry) for entry in _LISTED["comparison"])
"""In the order of the report."""


def config_of(setting: Setting, seed: int, folder: Path, extra: tuple[str, ...] = ()) -> RunConfig:
    """The configuration of one cell, which keeps its files in `folder`; judged on the test split."""
    name = f"{setting.name}-{seed}"
    tier = TIERS[setting.tier]
    teacher = () if tier.teacher is None else (f'tinker.teacher="{tier.teacher}"',)
    return load_config(
        setting.base,
        (
            f'run.name="{name}"',
            f"run.seed={seed}",
            f'run.directory="{folder}"',
            f'run.history="{folder}/{name}/history.duckdb"',
            f'tinker.student="{tier.student}"',
            *teacher,
            f'problems.sources.0.tier="{tier.problems}"',
            f"problems.sources.0.heldout={tier.test_problems}",
            'problems.sources.0.heldout_split="test"',
            "problems.validation_mutants=0",
            "evaluation.teacher=false",
            "evaluation.samples=4",
            f"evaluation.every={5 if setting.is_shipped else 0}",
            "checkpoints.keep_last=6",
            *setting.overrides,
            *extra,
        ),
        environment={},
    )
