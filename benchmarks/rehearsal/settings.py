"""Overrides of the configurations `demo` and `cvdp` for a rehearsal: address, sizes, and what the tiny models need."""

import json
import shutil
from pathlib import Path

from benchmarks.common import EVERY_STEP_WITH_TEACHER, run_settings
from rtl_core.config import load_config
from rtl_core.cost.tokens import load_prices
from rtl_core.tinymodels import model_path

CONTEXT = 16384
"""Context of the tiny models here: larger than in their training, because CVDP's prompts need it."""


def every_run(folder: Path, run: str, url: str, models: dict[str, Path]) -> list[str]:
    """Names, address and sizes: two groups of two answers a step."""
    return [
        *run_settings(run, folder / "runs", folder / "history.duckdb"),
        "run.epochs=1",
        f"tinker.base_url={url}",
        f"tinker.student={models['student']}",
        f"tinker.teacher={models['teacher']}",
        "sampling.group_size=2",
        "curriculum.problems_per_step=2",
        "evaluation.samples=1",
        "evaluation.k=[1]",
    ]


def demo(steps: int) -> list[str]:
    """`steps` steps, each with the teacher's scores."""
    return [
        f"problems.sources.0.train={2 * steps}",
        "problems.sources.0.heldout=2",
        "evaluation.teacher=false",
        *EVERY_STEP_WITH_TEACHER,
        "learning.kl_on=all",
    ]


def templated(folder: Path, chat_template: Path) -> dict[str, Path]:
    """Role -> a copy of the tiny model with another chat template."""
    models = {}
    for role in ("student", "teacher"):
        models[role] = Path(shutil.copytree(model_path(role), folder / role, dirs_exist_ok=True))
        shutil.copyfile(chat_template, models[role] / "chat_template.jinja")
        config = models[role] / "config.json"
        settings = {**json.loads(config.read_text()), "max_position_embeddings": CONTEXT}
        config.write_text(json.dumps(settings))
    return models


def priced(folder: Path, models: dict[str, Path]) -> Path:
    """Write a price list in which the tiny models cost as much as those of `cvdp`, whose budget needs prices."""
    real, prices = load_config("cvdp", environment={}, check_files=False).tinker, load_prices().models
    file = folder / "prices.toml"
    with file.open("w") as out:
        out.write('as_of = 2026-01-01\nsource = "the models of the configuration cvdp"\n')
        for path, name in ((models["student"], real.student), (models["teacher"], real.teacher)):
            out.write(f"[models.{json.dumps(str(path))}]\n")
            costs = prices[str(name)].model_dump(exclude_none=True)
            out.writelines(f"{kind} = {value}\n" for kind, value in costs.items())
    return file


def cvdp(folder: Path, models: dict[str, Path], problems: list[Path], steps: int) -> list[str]:
    """At least `steps` steps, each with two starter problems and two of CVDP's."""
    lines = [line for path in problems for line in path.read_text().splitlines() if line]
    (folder / "problems.jsonl").write_text("".join(f"{line}\n" for line in lines[: 2 * steps]))
    return [
        f"cost.prices={priced(folder, models)}",
        f"problems.sources.0.path={folder / 'problems.jsonl'}",
        f"problems.sources.1.train={2 * steps}",
        "problems.sources.1.heldout=2",
        "prompting.max_prompt_tokens=4096",
        "sampling.max_tokens=64",
        # The prompt that the tiny models were trained on, so that they end most answers to starter problems. They do not end those to
        # CVDP's problems, so the shipped safe ranges would end the run.
        "prompting.template=bare",
        "health.accept_up_to_step=1000000",
        # Almost no answer passes, so steps without the teacher would have nothing to train on: it stays until the last one.
        "learning.kl_schedule_part=1.0",
    ]
