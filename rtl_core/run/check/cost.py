"""Checks of what a run will use against what is available: dollars, hours and disk space."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from rtl_core.cost.estimate import Estimate, Prompts, duration
from rtl_core.cost.tokens import total_dollars
from rtl_core.errors import ConfigError
from rtl_core.run.check.prompts import Known
from rtl_core.run.forecast import Forecast, forecast, prices_of
from rtl_core.types.finding import Finding
from rtl_grader.types.problem import Problem
from rtl_grader.words import counted

ROLLOUT_BYTES, TOKEN_BYTES = 3_000, 16
"""Bytes in the history per rollout (verdict and keys) and per token (id, two log-probabilities and text)."""
SPARE_BYTES = 10_000_000
"""For the report and logs."""


def cost(known: Known) -> Iterator[Finding]:
    """Maximum and likely cost of the run, and whether the budget covers it."""
    config, found = known.config, _forecast(known)
    try:
        prices_of(config)
    except ConfigError as error:
        yield Finding("cost", "wrong", error.message, error.hint)
        return
    most, likely = (
        total_dollars(estimate.usage, found.prices) for estimate in (found.most, found.likely)
    )
    hours = "about {}, {} at most".format(*map(duration, found.hours()))
    origin = f"measured over {counted(found.answers, 'answer')}" if found.answers else "assumed"
    steps = f"{counted(found.most.steps, 'step')}, {found.most.rollouts:,} answers at most; lengths and speed {origin}"
    if most is None or likely is None:
        if config.tinker.all_local:
            yield Finding("cost", "ok", f"no dollars with the embedded service; {hours}; {steps}")
        else:
            text = f"the price list of {found.prices.as_of} has no price for these models; {hours}; {steps}"
            remedy = "copy rtl_core/cost/prices.toml, add them, and name the copy with cost.prices"
            yield Finding("cost", "warning", text, remedy)
        return
    text = f"at most ${most:,.2f}, likely ${likely:,.2f}; {hours}; {steps}"
    budget = config.cost.budget_usd
    if budget is None and config.run.purpose == "train" and not config.tinker.all_local:
        example = f"`--set cost.budget_usd={math.ceil(likely)}`"
        remedy = f"set what it may cost, such as {example}: the run stops before the step that would exceed that"
        yield Finding("cost", "wrong", f"{text}; no budget limits it", remedy)
    elif budget is not None and budget < most:
        stops = "likely before its end" if budget < likely else "if it costs the maximum"
        remedy = "raise cost.budget_usd now or later: the same command then resumes the run"
        yield Finding(
            "cost", "warning", f"{text}; the budget of ${budget:,.2f} stops it {stops}", remedy
        )
    else:
        yield Finding(
            "cost",
            "ok",
            text + ("" if budget is None else f"; the budget of ${budget:,.2f} covers that"),
        )


def disk(known: Known) -> Iterator[Finding]:
    """Whether the run's folders are writable, and free space against the history and the weights kept by an
    embedded service."""
    config, found = known.config, _forecast(known)
    kept = config.checkpoints.keep_last + config.checkpoints.keep_best + 2
    if config.checkpoints.keep_every:
        kept += found.most.steps // config.checkpoints.keep_every
    weights = known.readiness.checkpoint_bytes * min(kept, found.most.steps + 2)

    def history_bytes(estimate: Estimate) -> float:
        tokens = sum(model.sample for model in estimate.usage.values())
        return estimate.rollouts * ROLLOUT_BYTES + tokens * TOKEN_BYTES + SPARE_BYTES

    needs: list[tuple[Path, float, float]] = [
        (
            _existing(config.run.history.parent),
            history_bytes(found.likely),
            history_bytes(found.most),
        ),
        (_existing(config.run.directory), weights, weights),
    ]
    for folder in sorted(
        {folder for folder, _, _ in needs if not (folder.is_dir() and os.access(folder, os.W_OK))}
    ):
        why = "not writable" if folder.is_dir() else "not a folder"
        remedy = "change its permissions, or set run.directory and run.history to another folder"
        yield Finding("disk", "wrong", f"{folder} is {why}", remedy)
    by_device: dict[int, tuple[Path, float, float]] = {}
    for folder, likely, most in needs:
        device = folder.stat().st_dev
        first, sum_likely, sum_most = by_device.get(device, (folder, 0.0, 0.0))
        by_device[device] = (first, sum_likely + likely, sum_most + most)
    for folder, likely, most in by_device.values():
        free = shutil.disk_usage(folder).free
        text = f"{_size(free)} free at {folder}; the run writes about {_size(likely)}, {_size(most)} at most"
        if free > most:
            yield Finding("disk", "ok", text)
        else:
            remedy = "make room, or set run.directory and run.history to a larger disk"
            yield Finding("disk", "wrong" if free < likely else "warning", text, remedy)


def _forecast(known: Known) -> Forecast:
    def prompts(problems: Sequence[Problem]) -> Prompts:
        kept = [problem for problem in problems if problem.id in known.prompts]
        lengths = [
            (float(len(known.prompts[problem.id].tokens_P)), problem.source) for problem in kept
        ]
        return Prompts.of([(tokens, tokens, source) for tokens, source in lengths])

    train, heldout = prompts(known.loaded.train), prompts(known.loaded.heldout)
    return forecast(known.config, train, heldout, history=known.history, prices=known.prices)


def _existing(path: Path) -> Path:
    """Return the path itself or its nearest existing parent, which is not a folder where a file is in the way."""
    path = path.resolve()
    return next(parent for parent in (path, *path.parents) if parent.exists())


def _size(count: float) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.0f} MB"
