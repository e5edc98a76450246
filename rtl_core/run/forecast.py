"""What a run will use and cost, from its configuration, the lengths of its prompts, and what the history holds of the same student."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rtl_core.backend.base import SAVED
from rtl_core.config import RunConfig
from rtl_core.cost.estimate import Estimate, Pace, Workload, at_most, likely, planned_groups
from rtl_core.cost.tokens import ModelPrice, Prices, Tokens, load_prices, unpriced
from rtl_core.errors import ConfigError, HistoryError
from rtl_core.history.store import History
from rtl_core.localtinker.devices import LARGE_BYTES, weight_bytes
from rtl_core.localtinker.rate import rates_of
from rtl_core.pretrained import MODELS, models_folder

SHARE_OF_LIMIT = 0.35
"""Mean length of an answer as a share of `sampling.max_tokens`, where nothing was measured."""
FAILED_SHARE = 0.5
"""Share of answers that fail and get a further turn, where nothing was measured."""


@dataclass(frozen=True)
class Forecast:
    """The most that a run can use, what it likely will, and what the second was taken from, a sentence each."""

    most: Estimate
    likely: Estimate
    prices: Prices
    assumptions: Sequence[str]


def sizes_of(
    lengths: Mapping[str, Sequence[float]], most: Mapping[str, Sequence[float]], sources: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """What a `Workload` says of prompts: of split (`train`, `heldout`) -> tokens of each prompt, likely and at most, and its source."""

    def mean_of(values: Sequence[float]) -> float:
        return sum(values) / len(values) if values else 0.0

    return {
        "train_problems": len(lengths["train"]),
        "heldout_problems": len(lengths["heldout"]),
        "train_prompt": mean_of(lengths["train"]),
        "heldout_prompt": mean_of(lengths["heldout"]),
        "most_train_prompt": mean_of(most["train"]),
        "most_heldout_prompt": mean_of(most["heldout"]),
        "longest_train_prompt": max(most["train"], default=0.0),
        **{
            f"{split}_sources": {source: n / len(of_split) for source, n in Counter(of_split).items()}
            for split, of_split in sources.items()
        },
    }


def forecast(
    config: RunConfig,
    sizes: Mapping[str, Any],
    notes: Sequence[str] = (),
    *,
    completion: float | None = None,
    prices: Path | None = None,
    price_list: Prices | None = None,
    history: History | None = None,
) -> Forecast:
    """What a run will use.

    Args:
        sizes: what `sizes_of` says of its prompts; `notes` tell where it comes from.
        completion: mean tokens of an answer, if the caller knows better than the history.
        prices, price_list: a price list in place of the configuration's, to be read or read already.
        history: the run's, where it is open.
    """
    assumptions = list(notes)
    known = measured(config, assumptions, history)
    if completion is not None:
        assumptions.append(f"answers: {completion:,.0f} tokens on average, as you said")
    elif known is not None:
        completion = known.completion
        assumptions.append(f"answers: {completion:,.0f} tokens on average, measured in {config.run.history}")
    else:
        completion = SHARE_OF_LIMIT * config.sampling.max_tokens
        assumptions.append(
            f"answers: {completion:,.0f} tokens on average, assumed as {SHARE_OF_LIMIT:.0%} of sampling.max_tokens;"
            " after a first run they are measured, or say --completion-tokens"
        )
    shares = _shares(config, sizes["train_problems"], known, assumptions)
    work = Workload(**sizes, **shares, completion=completion)
    pace = _pace(config, assumptions)
    step_s = None
    if known is not None and known.rollout_s is not None:
        step_s = known.rollout_s * config.sampling.group_size * config.curriculum.problems_per_step
        assumptions.append(
            f"a step takes {step_s:,.0f} s: {known.rollout_s:.2f} s a rollout, measured in the same history"
        )
    assumptions.append("within a group the prompt is read once and then cached; no group is replaced")
    price_list = price_list or load_prices(prices or config.cost.prices)
    price_list = price_list.model_copy(update={"models": {**price_list.models, **_free(config)}})
    return Forecast(
        at_most(config, work, pace, price_list), likely(config, work, pace, step_s), price_list, assumptions
    )


@dataclass(frozen=True)
class Measured:
    """What the history says of earlier runs of the same student; None where they do not tell."""

    completion: float
    """Mean tokens of an answer."""
    rollout_s: float | None
    """Mean seconds of a step per rollout."""
    trained_share: float | None
    """Of the tokens sampled in steps without a KL, the share that was trained on."""
    failed_share: float | None
    """Share of first answers that failed."""


_MEASURED = """
WITH mine AS (SELECT run FROM runs WHERE student = $student),
sampled AS (
    SELECT run, step, count(*) FILTER (WHERE purpose = 'train') AS rollouts, sum(n_prompt + n_tokens - 1) AS tokens
    FROM rollouts
    WHERE run IN (FROM mine) AND (purpose = 'train' OR (purpose = 'refinement' AND evaluation IS NULL))
    GROUP BY run, step)
SELECT
    (SELECT avg(n_tokens) FROM rollouts WHERE purpose = 'train' AND run IN (FROM mine)) AS completion,
    (SELECT sum(t.seconds) / sum(n.rollouts) FROM step_times t JOIN sampled n USING (run, step) WHERE t.stage = 'total') AS rollout_s,
    (SELECT sum(s.train_tokens) / sum(n.tokens) FROM steps s JOIN sampled n USING (run, step) JOIN step_metrics w USING (run, step)
     WHERE w.name = 'learning/kl_weight' AND w.value = 0 AND s.train_tokens IS NOT NULL) AS trained_share,
    (SELECT avg(CAST(outcome <> 'passed' AS INTEGER)) FROM verdicts WHERE purpose = 'train' AND run IN (FROM mine)) AS failed_share
"""


def measured(config: RunConfig, notes: list[str], history: History | None = None) -> Measured | None:
    """What the history tells of the same student; None without a history, or where it has no training rollouts of it."""
    if not config.run.history.is_file():
        return None
    student = {"student": config.tinker.student}
    try:
        reader = history or History(config.run.history, read_only=True)
        (row,) = reader.query(_MEASURED, student).to_pylist()
    except HistoryError as error:
        notes.append(f"nothing is measured: {error.message}")
        return None
    return None if row["completion"] is None else Measured(**row)


def _shares(config: RunConfig, problems: int, found: Measured | None, notes: list[str]) -> dict[str, Any]:
    """How much of what is sampled is trained on and followed up; adds to `notes` how it was found."""
    shares: dict[str, Any] = {}
    steps = len(planned_groups(config, problems))
    charged = [config.learning.uses_kl_at(step, steps) for step in range(steps)]
    if any(charged):
        notes.append("trained on: every rollout of a step with a KL")
    if not all(charged):
        if found is not None and found.trained_share is not None:
            shares["trained_share"] = found.trained_share
            notes.append(
                f"trained on: {found.trained_share:.0%} of the tokens of a step without a KL, measured in {config.run.history}"
            )
        else:
            notes.append("trained on: every rollout of a step without a KL, assumed; groups of equal rewards are not")
    if config.refinement.turns > 1:
        known = None if found is None else found.failed_share
        shares["failed_share"] = FAILED_SHARE if known is None else known
        origin = "assumed" if known is None else "measured"
        notes.append(f"further turns: {shares['failed_share']:.0%} of the answers fail, {origin}")
    return shares


def _pace(config: RunConfig, notes: list[str]) -> Pace:
    workers = config.grading.workers
    graders = workers if isinstance(workers, int) and workers else os.cpu_count() or 1
    large = _large_model(config)
    own = (
        _pace_of(config.tinker.is_local, graders, notes) if large is None else _pace_here(config, large, graders, notes)
    )
    if not config.tinker.teacher_apart:
        return own
    theirs = _pace_of(config.tinker.teacher_base_url == "local", graders, [])
    notes.append(f"the teacher's service: {theirs.score_tokens_per_s:,.0f} scored tokens a second, assumed")
    return replace(own, score_tokens_per_s=theirs.score_tokens_per_s)


def _large_model(config: RunConfig) -> Path | None:
    """The folder of a student that the embedded service serves and that is none of the tiny ones; None too where it is not there yet."""
    name = config.tinker.student
    if not config.tinker.is_local:
        return None
    folder = config.tinker.local_models.get(name) or (models_folder() / name if name in MODELS else None)
    return folder if folder is not None and folder.is_dir() and weight_bytes(folder) >= LARGE_BYTES else None


def _pace_here(config: RunConfig, folder: Path, graders: int, notes: list[str]) -> Pace:
    rates = rates_of(folder, config.tinker.local_dtype, config.tinker.local_threads)
    notes.append(
        f"embedded service on this machine's CPU with {rates.parameters / 1e6:,.0f} million parameters in {config.tinker.local_dtype}:"
        f" {rates.sampled:,.0f} sampled, {rates.scored:,.0f} scored, {rates.trained:,.0f} trained tokens a second, estimated from a"
        f" matrix product that was timed just now; the service takes about {rates.memory_gb:.1f} GB"
    )
    notes.append(f"grading: 0.2 s a grade on {graders} cores")
    return Pace(rates.sampled, 1.0, 0.2, graders, rates.scored, rates.trained, 2.0)


def _pace_of(local: bool, graders: int, notes: list[str]) -> Pace:
    if local:
        notes.append(
            "embedded service with its tiny models: 20,000 sampled, 40,000 scored, 40,000 trained tokens a second, and"
            f" 0.01 s a grade on {graders} cores, since equal answers are scored, trained on and graded once"
        )
        return Pace(20_000.0, 1.0, 0.01, graders, 40_000.0, 40_000.0, 0.3)
    notes.append(
        "time on the service, assumed: 60 tokens a second and answer, all answers of a step at once (256 at most);"
        " 20,000 scored and trained tokens a second; 60 s a step for queues, saving and a new sampler"
    )
    notes.append(f"grading: 3 s a grade on {graders} cores")
    return Pace(60.0, 256.0, 3.0, graders, 20_000.0, 20_000.0, 60.0)


def _free(config: RunConfig) -> dict[str, ModelPrice]:
    """Models that cost nothing beside others that do: those of the embedded service, where the other part of the run is elsewhere."""
    tinker = config.tinker
    names = {tinker.student, *tinker.named_teachers.values()} if tinker.teacher_apart else ()
    return {name: ModelPrice(prefill=0, cached=0, sample=0, train=0) for name in names if tinker.is_embedded(name)}


def prices_of(config: RunConfig, bases: Mapping[str, str] = MappingProxyType({})) -> Prices:
    """The price list of a run. `bases`: a teacher that is saved weights -> its base model, whose price it has. Of one whose base model is
    not known nothing is said.

    Raises:
        ConfigError: a budget in dollars is set, and something that the run uses has no price.
    """
    prices = load_prices(config.cost.prices)
    saved = {name: prices.models[base] for name, base in bases.items() if base in prices.models}
    prices = prices.model_copy(update={"models": {**saved, **prices.models, **_free(config)}})
    teachers = config.tinker.named_teachers.values()
    usage = {name: Tokens(1, 1, 1) for name in teachers if name in bases or not name.startswith(SAVED)}
    usage[config.tinker.student] = Tokens(1, 1, 1, 1)
    if config.cost.budget_usd is not None and (missing := unpriced(usage, prices)):
        raise ConfigError(
            f"cost.budget_usd is set, but the price list of {prices.as_of} has no price for {', '.join(missing)}",
            "copy rtl_core/cost/prices.toml, add them, and name the copy with cost.prices",
        )
    return prices
