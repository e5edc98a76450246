"""Make the pair of tiny models: one tokenizer, two trainings, fp16 folders, and the checksums of every file."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rtl_core.problems.starter.catalog import FAMILIES
from rtl_core.tinymodels import MODEL_NAMES, ModelName
from rtl_core.tinymodels.corpus import STUDENT, TEACHER, Mixture
from rtl_core.tinymodels.pretrain import Shape, new_model, pretrain
from rtl_core.tinymodels.tokenizer import make_tokenizer

CHECKSUMS = "checksums.json"


@dataclass(frozen=True)
class Recipe:
    """What makes a model: its size, what it reads, and the seed of its weights and data."""

    shape: Shape
    mixture: Mixture
    steps: int
    seed: int = 0


RECIPES: dict[ModelName, Recipe] = {
    "student": Recipe(Shape(hidden=96, heads=3, kv_heads=1, inner=288), STUDENT, steps=1500),
    "teacher": Recipe(Shape(hidden=128, heads=4, kv_heads=2, inner=384), TEACHER, steps=2000),
}


def make_model(
    name: ModelName,
    output: Path,
    seconds: float = math.inf,
    report: Callable[[int, float, float], None] = lambda step, loss, elapsed: None,
) -> int:
    """Train one model, for `seconds` at most, and write its folder `output/name`; returns the number of steps taken."""
    recipe = RECIPES[name]
    tokenizer = make_tokenizer()
    model = new_model(recipe.shape, tokenizer, recipe.seed)
    steps = pretrain(
        model,
        tokenizer,
        FAMILIES["starter"],
        recipe.mixture,
        steps=recipe.steps,
        seconds=seconds,
        seed=recipe.seed,
        report=report,
    )
    folder = output / name
    model.half().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for path in folder.iterdir():
        path.chmod(0o644)
    return steps


def checksums_of(output: Path) -> dict[str, str]:
    """SHA-256 (hex) of every file of both model folders, by path relative to `output`."""
    paths = sorted(path for name in MODEL_NAMES for path in (output / name).rglob("*") if path.is_file())
    return {path.relative_to(output).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def write_checksums(output: Path) -> None:
    """Write `checksums.json` beside the model folders."""
    (output / CHECKSUMS).write_text(json.dumps(checksums_of(output), indent=2) + "\n")
