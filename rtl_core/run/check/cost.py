"""Checks of what a run will use against what is available: dollars, hours and disk space."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from rtl_core.cost.estimate import Estimate, Prompts, duration
from rtl_core.cost.tokens import no_price
from rtl_core.errors import ConfigError
from rtl_core.run.check.prompts import PreflightInput
from rtl_core.run.forecast import Forecast, forecast, prices_of
from rtl_core.types.finding import Finding, Findings, Level
from rtl_grader.types.problem import Problem
from rtl_grader.words import counted

ROLLOUT_BYTES, TOKEN_BYTES = 3_000, 16
"""Bytes in the history per rollout (verdict and keys) and per token (id, two log-probabilities and text)."""
SPARE_BYTES = 10_000_000
"""For the report and logs."""


def cost(inputs: PreflightInput) -> Findings:
    """Whether the budget can be watched; with prompts, maximum and likely cost, and whether the budget covers them."""
    config = inputs.config
    try:
        prices_of(config)
    except ConfigError as error:
        yield Finding.of("cost", error)
        return
    if config.run.purpose != "train" or not inputs.prompts:
        return
    plan = _forecast(inputs)
    likely, most = plan.usd
    rest = _hours_and_steps(plan)
    if most is None or likely is None:
        if config.is_free:
            yield Finding("cost", "ok", f"no dollars with the embedded service; {rest}")
        else:
            lacks = no_price(plan.usage, plan.prices, "no budget can limit the run")
            in_cloud = config.uses_default_service and "TINKER_BASE_URL" not in os.environ
            level: Level = "wrong" if in_cloud else "warning"
            yield Finding("cost", level, f"{lacks.message}; {rest}", lacks.hint)
        return
    text = f"at most ${most:,.2f}, likely ${likely:,.2f}; {rest}"
    budget = config.cost.budget_usd
    if budget is None and not config.is_free:
        example = f"`--set cost.budget_usd={math.ceil(likely)}`"
        remedy = f"set what it may cost, such as {example}: the run stops before the step that would exceed that"
        yield Finding("cost", "wrong", f"{text}; no budget limits it", remedy)
    elif budget is None:
        yield Finding("cost", "ok", text)
    elif budget < most:
        stops = "likely before its end" if budget < likely else "if it costs the maximum"
        text = f"{text}; the budget of ${budget:,.2f} stops it {stops}"
        remedy = "raise cost.budget_usd now or later: the same command then resumes the run"
        yield Finding("cost", "warning", text, remedy)
    else:
        yield Finding("cost", "ok", f"{text}; the budget of ${budget:,.2f} covers that")


def _hours_and_steps(plan: Forecast) -> str:
    likely, most = map(duration, plan.hours())
    origin = f"measured over {counted(plan.answers, 'answer')}" if plan.answers else "assumed"
    steps = counted(plan.most.steps, "step")
    return (
        f"about {likely}, {most} at most; {steps}, {plan.most.rollouts:,} answers at most; "
        f"lengths and speed {origin}"
    )


def disk(inputs: PreflightInput) -> Findings:
    """Whether the run's folders are writable, and free space against the history and the weights kept by an
    embedded service."""
    config, plan = inputs.config, _forecast(inputs)
    section, steps = config.checkpoints, plan.most.steps
    kept = section.keep_last + section.keep_best + 2
    if section.keep_every:
        kept += steps // section.keep_every
    weights = inputs.readiness.checkpoint_bytes * min(kept, steps + 2)
    likely, most = _history_bytes(plan.likely), _history_bytes(plan.most)
    history, runs = _existing(config.run.history.parent), _existing(config.run.directory)
    for folder in sorted({history, runs}):
        if folder.is_dir() and os.access(folder, os.W_OK):
            continue
        why = "not writable" if folder.is_dir() else "not a folder"
        remedy = (
            "change its permissions, or set run.directory and run.history to another folder"
        )
        yield Finding("disk", "wrong", f"{folder} is {why}", remedy)
    needs = [(history, likely, most), (runs, weights, weights)]
    if history.stat().st_dev == runs.stat().st_dev:
        needs = [(history, likely + weights, most + weights)]
    for folder, likely, most in needs:
        free = shutil.disk_usage(folder).free
        writes = f"the run writes about {_size(likely)}, {_size(most)} at most"
        text = f"{_size(free)} free at {folder}; {writes}"
        if free > most:
            yield Finding("disk", "ok", text)
        else:
            remedy = "make room, or set run.directory and run.history to a larger disk"
            yield Finding("disk", "wrong" if free < likely else "warning", text, remedy)


def _history_bytes(estimate: Estimate) -> float:
    tokens = sum(model.sample for model in estimate.usage.values())
    return estimate.rollouts * ROLLOUT_BYTES + tokens * TOKEN_BYTES + SPARE_BYTES


def _forecast(inputs: PreflightInput) -> Forecast:
    def prompts(problems: Sequence[Problem]) -> Prompts:
        lengths = []
        for problem in problems:
            if problem.id in inputs.prompts:
                tokens = float(len(inputs.prompts[problem.id].tokens_P))
                lengths.append((tokens, tokens, problem.source))
        mean, most = Prompts.of(lengths).mean, inputs.config.prompting.max_prompt_tokens
        for problem in inputs.unmeasured(problems):
            lengths.append((mean, float(most), problem.source))
        return Prompts.of(lengths)

    train, heldout = prompts(inputs.loaded.train), prompts(inputs.loaded.heldout)
    return forecast(
        inputs.config,
        train,
        heldout,
        history=inputs.history,
        prices=inputs.prices,
        agreements=inputs.prepared.agreements,
    )


def _existing(path: Path) -> Path:
    """Return the path itself or its nearest existing parent, which is not a folder where a file is in the way."""
    path = path.resolve()
    return next(parent for parent in (path, *path.parents) if parent.exists())


def _size(count: float) -> str:
    if count >= 1e9:
        return f"{count / 1e9:,.1f} GB"
    return f"{count / 1e6:,.0f} MB"
