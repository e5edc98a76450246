"""What a run will use, beside what there is: dollars, hours, and room on the disk."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from rtl_core.cost.estimate import Prompts, duration
from rtl_core.cost.tokens import total_dollars
from rtl_core.errors import ConfigError
from rtl_core.reporting.text import counted
from rtl_core.run.check.prompts import Known
from rtl_core.run.forecast import Forecast, forecast, prices_of
from rtl_core.types.finding import Finding
from rtl_core.types.problem import Problem

ROLLOUT_BYTES, TOKEN_BYTES = 3_000, 16
"""What a rollout takes in the history: its verdict and keys, and for each token its id, two log-probabilities and its text."""
SPARE_BYTES = 200_000_000
"""For the report, logs and the copy that a migration or a snapshot makes."""


def cost(known: Known) -> Iterator[Finding]:
    """The most that the run can cost, what it likely will, and whether the budget covers it."""
    config, found = known.config, _forecast(known)
    try:
        prices_of(config)
    except ConfigError as error:
        yield Finding("cost", "wrong", error.message, error.hint)
        return
    most, likely = (total_dollars(one.usage, found.prices) for one in (found.most, found.likely))
    hours = "about {}, {} if it uses the most".format(*map(duration, found.hours()))
    origin = f"measured over {counted(found.answers, 'answer')}" if found.answers else "assumed"
    steps = f"{counted(found.most.steps, 'step')}, {found.most.rollouts:,} answers at most; lengths and speed {origin}"
    if most is None or likely is None:
        if known.config.tinker.all_local:
            yield Finding("cost", "ok", f"no dollars with the embedded service; {hours}; {steps}")
        else:
            text = f"the price list of {found.prices.as_of} has no price for these models; {hours}; {steps}"
            yield Finding(
                "cost", "warning", text, "copy rtl_core/cost/prices.toml, add them, and name it with cost.prices"
            )
        return
    text = f"at most ${most:,.2f}, likely ${likely:,.2f}; {hours}; {steps}"
    budget = config.cost.budget_usd
    if budget is None and config.run.purpose == "train" and not config.tinker.all_local:
        yield Finding(
            "cost",
            "wrong",
            f"{text}; no budget stops it",
            f"say what it may cost, such as `--set cost.budget_usd={math.ceil(likely)}`: it stops before the step that would exceed that",
        )
    elif budget is not None and budget < most:
        stops = "likely before its end" if budget < likely else "should it use the most"
        yield Finding(
            "cost",
            "warning",
            f"{text}; the budget of ${budget:,.2f} stops it {stops}",
            "raise cost.budget_usd, or let it: the same command goes on with more",
        )
    else:
        yield Finding("cost", "ok", text + ("" if budget is None else f"; the budget of ${budget:,.2f} covers that"))


def disk(known: Known) -> Iterator[Finding]:
    """Whether the run can write, and free space against what it will: its history, and the weights that an embedded service keeps."""
    config, found = known.config, _forecast(known)
    kept = config.checkpoints.keep_last + config.checkpoints.keep_best + 2
    if config.checkpoints.keep_every:
        kept += found.most.steps // config.checkpoints.keep_every
    places = {config.run.history.parent: [0.0, 0.0], config.run.directory: [0.0, 0.0]}
    for one, index in ((found.likely, 0), (found.most, 1)):
        tokens = sum(model.sample for model in one.usage.values())
        places[config.run.history.parent][index] += one.rollouts * ROLLOUT_BYTES + tokens * TOKEN_BYTES + SPARE_BYTES
        places[config.run.directory][index] += known.readiness.checkpoint_bytes * min(kept, found.most.steps + 2)
    folders = {_existing(place) for place in places}
    for there in sorted(folder for folder in folders if not os.access(folder, os.W_OK)):
        remedy = "change its permissions, or set run.directory and run.history to another folder"
        yield Finding("disk", "wrong", f"nothing can be written in {there}", remedy)
    by_device: dict[int, tuple[Path, list[float]]] = {}
    for place, needed in places.items():
        there = _existing(place)
        _, sum_of = by_device.setdefault(there.stat().st_dev, (there, [0.0, 0.0]))
        sum_of[:] = [sum_of[0] + needed[0], sum_of[1] + needed[1]]
    for there, (likely, most) in by_device.values():
        free = shutil.disk_usage(there).free
        text = f"{_size(free)} free at {there}; the run writes about {_size(likely)}, {_size(most)} at most"
        if free > most:
            yield Finding("disk", "ok", text)
        else:
            remedy = "make room, or set run.directory and run.history to a larger disk"
            yield Finding("disk", "wrong" if free < likely else "warning", text, remedy)


def _forecast(known: Known) -> Forecast:
    def prompts(problems: Sequence[Problem]) -> Prompts:
        kept = [problem for problem in problems if problem.id in known.prompts]
        counted = [(float(len(known.prompts[problem.id].tokens_P)), problem.source) for problem in kept]
        return Prompts.of([(tokens, tokens, source) for tokens, source in counted])

    train, heldout = prompts(known.loaded.train), prompts(known.loaded.heldout)
    return forecast(known.config, train, heldout, history=known.history, prices=known.prices)


def _existing(path: Path) -> Path:
    """The folder itself, or the nearest above it that is there."""
    path = path.resolve()
    return next(folder for folder in (path, *path.parents) if folder.is_dir())


def _size(count: float) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.0f} MB"
