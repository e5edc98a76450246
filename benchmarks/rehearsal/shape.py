"""A configuration of the cloud as a rehearsal here: the same steps, groups, staleness, evaluations and
checkpoints with tiny models on generated problems, and the times of a cloud, divided."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.common import show
from benchmarks.rehearsal.faults import FAULTS, Fault
from localtinker.registry import live_checkpoints
from rtl_core.config import RunConfig, load_config, to_toml
from rtl_core.cost.estimate import planned_groups
from rtl_core.cost.prompts import prompts_of
from rtl_core.cost.tokens import load_prices, total_dollars
from rtl_core.history.store import History
from rtl_core.observe.usage import spent
from rtl_core.tinymodels import model_path

CLOUD_S = {
    "sample": 44.0,
    "score": 12.0,
    "forward_backward": 25.0,
    "optim_step": 2.0,
    "save_weights": 2.0,
    "save_weights_for_sampler": 2.0,
}
"""Seconds from a call to its answer: sampling and training as in tests/rollouts/test_run_ahead.py, the rest
assumed. Grading takes what it takes here."""
CHOSEN = (
    "429, rate limit",
    "queue paused",
    "a step twice",
    "401, key refused",
    "session lost",
    "sampler weights gone",
    "connection reset, step accepted",
    "trainer lost after its step",
    "NaN from the trainer",
    "a poisoned step",
)
"""Faults of a long rehearsal."""
_STAGES = """
SELECT t.stage, sum(t.seconds) AS seconds FROM step_times t JOIN steps s USING (run, step)
WHERE t.run = $run AND s.status = 'trained' GROUP BY ALL ORDER BY seconds DESC
"""
_TOTALS = """
SELECT s.step < $warm AS supervised, count(*) AS steps, median(t.seconds) AS median,
       quantile_cont(t.seconds, 0.9) AS p90 FROM step_times t JOIN steps s USING (run, step)
WHERE t.run = $run AND t.stage = 'total' GROUP BY ALL ORDER BY supervised DESC
"""


def shape_of(name: str, steps: int, divide: int, folder: Path) -> Path:
    """Write a configuration with the shape of another one and return its file.

    Args:
        name: the configuration; its data sets need not be there.
        steps: train steps.
        divide: divisor of the problems in a step and of the supervised steps' part.
        folder: for the file and its price list.
    """
    config = load_config(name, check_files=False)
    data = config.model_dump(mode="json", exclude_defaults=True)
    learning = config.learning
    whole = len(planned_groups(config, prompts_of(config, None, None, [])[0].count))
    warm = (
        max(1, round(learning.warm_start_steps * steps / whole))
        if learning.warm_start_steps
        else 0
    )
    per_step = max(2, config.curriculum.problems_per_step // divide)
    per_warm = max(2, config.problems_of_step(0) // divide)
    problems = warm * per_warm + (steps - warm) * per_step
    source = {"kind": "starter", "train": problems, "heldout": max(2, 64 // divide)}
    data["problems"] = {"sources": [source], "validation_mutants": 0}
    data["prompting"] = {"template": "bare", "max_prompt_tokens": 256}
    data["sampling"] |= {"max_tokens": 200}
    data["curriculum"] |= {"problems_per_step": per_step}
    data["learning"] |= {"warm_start_steps": warm, "warm_start_problems": per_warm}
    data["run"] |= {"epochs": 1}
    data.pop("health", None)  # its ranges are those of the real models
    roles = {"student": config.tinker.student, "teacher": str(config.tinker.teacher)}
    for role in roles:
        data["tinker"][role] = str(model_path(role))  # type: ignore[arg-type]
    prices = folder / "prices.toml"
    prices.write_text(_prices({str(model_path(r)): n for r, n in roles.items()}))  # type: ignore[arg-type]
    data["cost"] = {**data.get("cost", {}), "prices": str(prices)}
    file = folder / f"{name}.toml"
    file.write_text(to_toml(RunConfig.model_validate(data)))
    return file


def _prices(names: dict[str, str]) -> str:
    """A price list in which each tiny model costs what the model costs whose part it plays."""
    listed = load_prices()
    lines = [f"as_of = {listed.as_of}", f'source = "{listed.source}"']
    for path, name in names.items():
        lines.append(f'[models."{path}"]')
        given = listed.models[name].model_dump(exclude_none=True)
        lines += [f"{kind} = {price}" for kind, price in given.items()]
    return "\n".join(lines) + "\n"


def spread(names: Sequence[str], steps: int) -> list[Fault]:
    """The faults of these names, at equal distances over the steps."""
    faults = [fault for fault in FAULTS if fault.name in names]
    return [
        replace(fault, after=fault.after and math.ceil((at + 1) * steps / (len(faults) + 1)))
        for at, fault in enumerate(faults)
    ]


def print_run(db: Path, run: str, state: Path, wall_s: float) -> None:
    """Print what a rehearsed run took: step times, use of the stages, evaluations, checkpoints, cost."""
    history = History(db, read_only=True)
    config = RunConfig.model_validate(history.existing_run(run).config)
    totals = history.rows(_TOTALS, {"run": run, "warm": config.learning.warm_start_steps})
    show(
        f"{run}: seconds per step",
        ("steps", "number", "median", "p90"),
        [
            (
                "supervised" if row["supervised"] else "RL",
                str(row["steps"]),
                f"{row['median']:.1f}",
                f"{row['p90']:.1f}",
            )
            for row in totals
        ],
    )
    seconds = {row["stage"]: row["seconds"] for row in history.rows(_STAGES, {"run": run})}
    total, _ = seconds.pop("total"), seconds.pop("work", None)
    rows = [(stage, f"{value:.0f}", f"{value / total:.0%}") for stage, value in seconds.items()]
    show("use of the stages, which overlap", ("stage", "seconds", "of the steps' time"), rows)
    usage, prices = spent(history, run, config), load_prices(config.cost.prices)
    costs = {
        Path(model).name: total_dollars({model: one}, prices) for model, one in usage.items()
    }
    done = [evaluation.status for evaluation in history.evaluations(run)]
    dollars = ", ".join(f"{name} ${usd or 0:.4f}" for name, usd in costs.items())
    print(
        f"{wall_s / 60:.1f} minutes in all, {total / 60:.1f} in steps; evaluations: {done.count('done')} done, "
        f"{done.count('failed')} failed; {len(live_checkpoints(state))} saved weights left; "
        f"cost at the prices of the cloud's models: {dollars}"
    )
