"""What the matrix trains and compares: the entries of settings.toml, and the tiers of models and problems."""

import hashlib
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from benchmarks.learning import foreign
from rtl_core import pretrained
from rtl_core.config import RunConfig, load_config
from rtl_core.starter import spec
from rtl_core.tinymodels import ModelName, model_path

BASE = str(Path(__file__).with_name("base.toml"))
TierName = Literal["hard", "starter", "smollm2", "smollm2-rtl"]

STEPS = 64
PROBLEMS_PER_STEP = 8


@dataclass(frozen=True)
class Tier:
    """What all cells of a tier share."""

    title: str
    student: str
    teacher: str | None
    """None: the student is its own teacher."""
    problems: spec.Tier | None
    """None: those of `base`, which are read from files."""
    test_problems: int
    """A multiple of the number of families: 18 for the starter problems, 7 for the hard ones. 0: those held out."""
    goals: tuple[float, float]
    """Pass rates in training; the report gives the first step that reaches each."""
    base: str = BASE
    """Configuration that identifies the tier's line in the ledger."""
    overrides: tuple[str, ...] = ()
    """Overrides of that configuration."""

    @property
    def weights(self) -> list[str]:
        """SHA-256 of the models' weights, or of the package that a model comes from, in the order of the
        models' names."""
        return [_sha256(name) for name in sorted(filter(None, (self.student, self.teacher)))]


def _sha256(model: str) -> str:
    if model in pretrained.MODELS:
        return pretrained.MODELS[model].wheel_sha256
    return hashlib.sha256(
        (model_path(cast(ModelName, model)) / "model.safetensors").read_bytes()
    ).hexdigest()


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
        ("problems.sources.0.train=8",),  # its cells validate their own problems
    ),
    "smollm2-rtl": Tier(
        "SmolLM2-135M on masked parts of real RTL",
        "SmolLM2-135M-Instruct",
        None,
        None,
        0,
        (0.1, 0.2),
        "smollm2-rtl",
    ),
}
"""In the order of the report."""


@dataclass(frozen=True)
class Setting:
    """A way to train: the configuration `base`, the tier's models and problems, and these overrides."""

    name: str
    tier: TierName
    about: str
    overrides: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0, 1, 2)
    base: str = BASE
    """A configuration file, or the name of a shipped one, which then also sets steps and sizes."""
    after: str = ""
    """Another setting; the run starts from the weights of its cell with the same seed."""
    foreign: bool = False
    """Its teacher is that of foreign.py, with another tokenizer, which is trained first."""
    longer: bool = False
    """Samples more answers than RL alone: compare it at equal dollars, or by steps."""

    @property
    def is_shipped(self) -> bool:
        return self.base != BASE


@dataclass(frozen=True)
class Comparison:
    """A comparison of two settings, in points of pass@1 at an equal budget."""

    setting: str
    against: str
    ingredient: str
    """What the first has and the second lacks."""


_LISTED = tomllib.loads(Path(__file__).with_name("settings.toml").read_text(encoding="utf-8"))
_GIVEN: list[dict[str, Any]] = [
    {key: tuple(v) if isinstance(v, list) else v for key, v in entry.items()}
    for entry in _LISTED["setting"]
]
SETTINGS: dict[str, Setting] = {given["name"]: Setting(**given) for given in _GIVEN}
"""Every setting by name, in the order in which they run."""
COMPARISONS = tuple(Comparison(**entry) for entry in _LISTED["comparison"])
"""In the order of the report."""


def config_of(
    setting: Setting, seed: int, folder: Path, extra: tuple[str, ...] = ()
) -> RunConfig:
    """The configuration of a cell, with its files in `folder` and evaluations on the test split."""
    name = f"{setting.name}-{seed}"
    tier = TIERS[setting.tier]
    teacher = () if tier.teacher is None else (f'tinker.teacher="{tier.teacher}"',)
    problems = (
        f'problems.sources.0.tier="{tier.problems}"',
        f"problems.sources.0.heldout={tier.test_problems}",
        'problems.sources.0.heldout_split="test"',
    )
    return load_config(
        setting.base,
        (
            f'run.name="{name}"',
            f"run.seed={seed}",
            f'run.directory="{folder}"',
            f'run.history="{folder}/{name}/history.duckdb"',
            f'tinker.student="{tier.student}"',
            *teacher,
            *(problems if tier.problems else ()),
            "problems.validation_mutants=0",
            "evaluation.teacher=false",
            "evaluation.samples=4",
            f"evaluation.every={5 if setting.is_shipped else 0}",
            "checkpoints.keep_last=6",
            *setting.overrides,
            *(
                (f'tinker.local_models={{"{foreign.NAME}" = "{foreign.FOLDER}"}}',)
                if setting.foreign
                else ()
            ),
            *extra,
        ),
        environment={},
        check_files=False,  # the run itself names a file that is not there
    )
