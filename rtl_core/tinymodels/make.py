"""Make the tiny models: one tokenizer, a training for each model, fp16 folders, and the checksums of every file."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from transformers import Qwen3ForCausalLM

from rtl_core.tinymodels import MODEL_NAMES, ModelName
from rtl_core.tinymodels.corpus import AGENT, HARD_STUDENT, HARD_TEACHER, READER, STUDENT, TEACHER, Phase
from rtl_core.tinymodels.pretrain import Rates, Shape, new_model, pretrain
from rtl_core.tinymodels.tokenizer import AGENT_TEMPLATE, CHAT_TEMPLATE, make_tokenizer

CHECKSUMS = "checksums.json"


@dataclass(frozen=True)
class Recipe:
    """What makes a model: its size, what it reads, for how many steps, and the seed of its weights and data."""

    shape: Shape
    phases: tuple[Phase, ...]
    steps: int
    seed: int = 0
    start: ModelName | None = None
    """The model that it goes on from; None: random weights."""
    rates: Rates = field(default_factory=Rates)
    chat_template: str = CHAT_TEMPLATE


_SMALL = Shape(hidden=96, heads=3, kv_heads=1, inner=288)
_MEDIUM = Shape(hidden=128, heads=4, kv_heads=2, inner=384)
RECIPES: dict[ModelName, Recipe] = {
    "student": Recipe(_SMALL, STUDENT, steps=1400),
    "reader": Recipe(_SMALL, READER, steps=300, start="student", rates=Rates(matrices=0.01, rest=2e-3)),
    "agent": Recipe(
        _SMALL, AGENT, steps=300, start="student", rates=Rates(matrices=0.01, rest=2e-3), chat_template=AGENT_TEMPLATE
    ),
    "teacher": Recipe(_MEDIUM, TEACHER, steps=2000),
    "hard-teacher": Recipe(_MEDIUM, HARD_TEACHER, steps=1200, start="teacher", rates=Rates(matrices=0.01, rest=2e-3)),
    "hard-student": Recipe(
        _MEDIUM, HARD_STUDENT, steps=400, start="hard-teacher", rates=Rates(matrices=0.01, rest=2e-3)
    ),
}


def make_models(
    output: Path,
    seconds: float = math.inf,
    names: Sequence[ModelName] = MODEL_NAMES,
    report: Callable[[ModelName, int, float, float], None] = lambda name, step, loss, elapsed: None,
) -> dict[ModelName, int]:
    """Write a folder for each model and `output/checksums.json`; returns the steps that each training took.

    A training stops after `seconds` if its recipe is not done by then. `report` is called now and then with the model's
    name, the step, the loss per answer token and the seconds so far.
    """
    tokenizer = make_tokenizer()
    taken: dict[ModelName, int] = {}
    for name in names:
        recipe = RECIPES[name]
        tokenizer.chat_template = recipe.chat_template
        if recipe.start is None:
            model = new_model(recipe.shape, tokenizer, recipe.seed)
        else:
            model = Qwen3ForCausalLM.from_pretrained(output / recipe.start, dtype=torch.float32)
        taken[name] = pretrain(
            model,
            tokenizer,
            recipe.phases,
            steps=recipe.steps,
            seconds=seconds,
            seed=recipe.seed,
            rates=recipe.rates,
            report=lambda step, loss, elapsed, name=name: report(name, step, loss, elapsed),  # type: ignore[misc]
        )
        folder = output / name
        model.half().save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        for path in folder.iterdir():
            path.chmod(0o644)
    (output / CHECKSUMS).write_text(json.dumps(checksums_of(output), indent=2) + "\n")
    return taken


def checksums_of(folder: Path) -> dict[str, str]:
    """SHA-256 (hex) of every file of all models, by path relative to `folder`."""
    paths = sorted(path for name in MODEL_NAMES for path in (folder / name).rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
