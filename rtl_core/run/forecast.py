"""Forecast of a run's usage and cost, from its configuration, the lengths of its prompts, and earlier runs
of the same student."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from rtl_core.backend.base import SAVED
from rtl_core.config import RunConfig
from rtl_core.cost.estimate import Estimate, Prompts, Workload, at_most, likely, planned_groups
from rtl_core.cost.tokens import (
    ModelPrice,
    Prices,
    Tokens,
    Usage,
    load_prices,
    no_price,
    together,
    total_dollars,
)
from rtl_core.errors import HistoryError
from rtl_core.history.store import History
from rtl_core.pretrained import MODELS
from rtl_core.prompting.reading import Agreement
from rtl_grader.words import counted

SHARE_OF_LIMIT = 0.35
"""Assumed mean length of an answer as a share of `sampling.max_tokens`."""
TURNS_SHARE, TOOL_TOKENS_PER_TURN, FAILED_SHARE = 0.25, 400.0, 0.5
"""Assumed mean turns of an episode as a share of `episode.turns`, tokens from tools or the grader per turn,
and the share of turns without tools that are followed by another."""
SERVICE_TOKENS_PER_S, TINY_TOKENS_PER_S, LOCAL_TOKENS_PER_S = 1_300.0, 5_000.0, 45.0
"""Assumed answer tokens per second, including grading, scoring and training: on a hosted service with 100
concurrent answers; with the embedded service's tiny models; with a model of 135 million parameters on two
cores."""


@dataclass(frozen=True)
class Forecast:
    """Maximum and likely usage of a run, its speed, and the assumptions behind them, one sentence each."""

    most: Estimate
    likely: Estimate
    prices: Prices
    tokens_per_s: float
    """Answer tokens per second, including grading, scoring and training."""
    answers: int
    """Number of answers over which lengths and speed were measured; 0: they are assumed."""
    assumptions: Sequence[str]

    @property
    def usage(self) -> Usage:
        """Both usages together, for the kinds of tokens that need a price."""
        return together([self.most.usage, self.likely.usage])

    @property
    def usd(self) -> tuple[float | None, float | None]:
        """Likely and maximum dollars; None where a price is missing."""
        likely, most = (
            total_dollars(one.usage, self.prices) for one in (self.likely, self.most)
        )
        return likely, most

    def hours(self) -> tuple[float, float]:
        """Likely and maximum hours."""
        return self.likely.hours(self.tokens_per_s), self.most.hours(self.tokens_per_s)


def forecast(
    config: RunConfig,
    train: Prompts,
    heldout: Prompts,
    notes: Sequence[str] = (),
    *,
    completion: float | None = None,
    prices: Prices | None = None,
    history: History | None = None,
    agreements: Mapping[str, Agreement] = MappingProxyType({}),
) -> Forecast:
    """Forecast a run.

    Args:
        train, heldout: its prompts; `notes` say where they come from.
        completion: mean tokens of an answer, overriding the history.
        prices: a price list that replaces the configuration's.
        history: the run's history, if it is open.
        agreements: of teachers, by name, whose tokens differ from the student's.
    """
    assumptions = list(notes)
    earlier = measured(config, assumptions, history)
    if completion is not None:
        assumptions.append(f"answers: {completion:,.0f} tokens on average, as you said")
    elif earlier.completion is not None:
        completion = earlier.completion
        assumptions.append(
            f"answers: {completion:,.0f} tokens on average, {earlier.origin(config)}"
        )
    else:
        completion = SHARE_OF_LIMIT * config.trained_limit
        assumptions.append(
            f"answers: {completion:,.0f} tokens on average, assumed as {SHARE_OF_LIMIT:.0%} of {config.limit_key};"
            " after a first run they are measured, or say --completion-tokens"
        )
    turns, tool_tokens = _episodes(config, earlier, assumptions)
    trained_share = _trained_share(config, train.count, earlier, assumptions)
    for name, agreement in agreements.items():
        assumptions.append(
            f"{name} reads {agreement.ratio:.2f} tokens for each of the student's, measured on prompts and known-good "
            f"answers; at most {agreement.most_ratio:.2f}, the largest of them"
        )
    ratios = {name: agreement.ratio for name, agreement in agreements.items()}
    work = Workload(train, heldout, completion, trained_share, turns, tool_tokens, ratios)
    tokens_per_s = _tokens_per_s(config, earlier, assumptions)
    assumptions.append(
        "within a group the prompt is read once and then cached; no group is replaced"
    )
    prices = prices or _listed(config)
    answers = earlier.answers if earlier.tokens_per_s else 0
    highest = {name: agreement.most_ratio for name, agreement in agreements.items()}
    most = at_most(config, replace(work, teacher_ratios=highest), prices)
    return Forecast(most, likely(config, work), prices, tokens_per_s, answers, assumptions)


@dataclass(frozen=True)
class Measured:
    """Measurements from earlier runs of the same student; None if they have no data."""

    answers: int = 0
    """Answers sampled in steps; a few say little."""
    completion: float | None = None
    """Mean tokens of an answer."""
    tokens_per_s: float | None = None
    """Answer tokens of a step per second of its time."""
    trained_share: float | None = None
    """Share of the tokens sampled in steps without a KL that was trained on."""
    turns: float | None = None
    """Mean turns of an episode."""
    tool_tokens: float | None = None
    """Mean tokens from tools in an episode."""

    def origin(self, config: RunConfig) -> str:
        """Source of the figures in words."""
        return f"measured over {counted(self.answers, 'answer')} in {config.run.history}"


_MEASURED = """
WITH mine AS (
    SELECT run FROM runs
    WHERE student = $student
      AND coalesce(CAST(config ->> '$.learning.episodes' AS BOOLEAN), false) = $episodes
      AND (NOT $episodes OR (coalesce(config ->> '$.episode.tools', '') = '[]') = $whole_answers)),
answers AS (FROM rollouts WHERE purpose = 'train' AND run IN (FROM mine)),
of_tools AS (
    SELECT rollout, len(own_T) - n_tokens AS tool_tokens
    FROM tokens JOIN rollouts USING (rollout) WHERE own_T IS NOT NULL),
sampled AS (
    SELECT run, step, sum(n_tokens) AS answered, sum(n_prompt + n_tokens + coalesce(tool_tokens, 0) - 1) AS tokens
    FROM rollouts LEFT JOIN of_tools USING (rollout)
    WHERE run IN (FROM mine) AND purpose = 'train' AND evaluation IS NULL
    GROUP BY run, step)
SELECT
    (SELECT count(*) FROM answers) AS answers,
    (SELECT avg(n_tokens) FROM answers) AS completion,
    (SELECT sum(n.answered) / nullif(sum(t.seconds), 0)
     FROM step_times t JOIN sampled n USING (run, step) WHERE t.stage = 'total') AS tokens_per_s,
    (SELECT sum(s.train_tokens) / sum(n.tokens)
     FROM steps s JOIN sampled n USING (run, step) JOIN step_metrics w USING (run, step)
     WHERE w.name = 'learning/kl_weight' AND w.value = 0) AS trained_share,
    (SELECT avg(n_turns) FROM answers) AS turns,
    (SELECT avg(tool_tokens) FROM answers JOIN of_tools USING (rollout)) AS tool_tokens
"""


def measured(config: RunConfig, notes: list[str], history: History | None = None) -> Measured:
    """Read the measurements of the same student; there are none without a history or without its training rollouts."""
    if not config.run.history.is_file():
        return Measured()
    try:
        reader = history or History(config.run.history, read_only=True)
        (row,) = reader.rows(
            _MEASURED,
            student=config.tinker.student,
            episodes=config.learning.episodes,
            whole_answers=config.episode.whole_answers,
        )
    except HistoryError as error:
        notes.append(f"no measurements: {error.message}")
        return Measured()
    return Measured(**row)


def _episodes(config: RunConfig, earlier: Measured, notes: list[str]) -> tuple[float, float]:
    """Return mean turns and tool tokens of an answer; adds their source to `notes`."""
    if not config.learning.episodes:
        return 1.0, 0.0
    if earlier.turns is not None and earlier.tool_tokens is not None:
        turns, tool_tokens, origin = earlier.turns, earlier.tool_tokens, earlier.origin(config)
    else:
        most, whole = config.episode.most_turns, config.episode.whole_answers
        with_tools = max(1.0, TURNS_SHARE * most)
        turns = sum(FAILED_SHARE**turn for turn in range(most)) if whole else with_tools
        tool_tokens = TOOL_TOKENS_PER_TURN * (turns - whole)
        origin = "assumed; after a first run they are measured"
    notes.append(
        f"episodes: {turns:,.1f} turns with {tool_tokens:,.0f} tokens from tools, {origin}"
    )
    return turns, tool_tokens


def _trained_share(
    config: RunConfig, problems: int, earlier: Measured, notes: list[str]
) -> float:
    """Return the share of sampled tokens that a step without a KL trains on; adds its source to `notes`."""
    steps = len(planned_groups(config, problems))
    charged = [config.learning.uses_kl_at(step, steps) for step in range(steps)]
    if any(charged):
        notes.append("trained on: every rollout of a step with a KL")
    if all(charged):
        return 1.0
    if earlier.trained_share is None:
        notes.append(
            "trained on: every rollout of a step without a KL, assumed; groups of equal rewards are not"
        )
        return 1.0
    notes.append(
        f"trained on: {earlier.trained_share:.0%} of the tokens of a step without a KL, {earlier.origin(config)}"
    )
    return earlier.trained_share


def _tokens_per_s(config: RunConfig, earlier: Measured, notes: list[str]) -> float:
    """Return the answer tokens that a run processes per second; adds their source to `notes`."""
    what = "answer tokens per second, including grading, scoring and training"
    if earlier.tokens_per_s:
        notes.append(f"time: {earlier.tokens_per_s:,.0f} {what}, {earlier.origin(config)}")
        return earlier.tokens_per_s
    name = config.tinker.student
    if not config.tinker.is_local:
        rate, where = SERVICE_TOKENS_PER_S, "a service that samples about 100 answers at once"
    elif name in config.tinker.local_models or name in MODELS:
        rate, where = LOCAL_TOKENS_PER_S, "a model of 135 million parameters on two cores"
    else:
        rate, where = TINY_TOKENS_PER_S, "the embedded service with its tiny models"
    notes.append(
        f"time: {rate:,.0f} {what}, assumed for {where}; after a first run it is measured"
    )
    return rate


def _free(config: RunConfig) -> dict[str, ModelPrice]:
    """Return zero prices for models of the embedded service if another part of the run is paid."""
    tinker = config.tinker
    paid = tinker.teacher_apart or config.learning.imitates_endpoint
    names = {tinker.student, *tinker.named_teachers.values()} if paid else ()
    return {
        name: ModelPrice(prefill=0, cached=0, sample=0, train=0)
        for name in names
        if tinker.is_embedded(name)
    }


def _listed(config: RunConfig, bases: Mapping[str, str] = MappingProxyType({})) -> Prices:
    """Return the price list of a run, without a check."""
    prices = load_prices(config.cost.prices)
    saved = {name: prices.models[base] for name, base in bases.items() if base in prices.models}
    return prices.model_copy(update={"models": {**saved, **prices.models, **_free(config)}})


def prices_of(config: RunConfig, bases: Mapping[str, str] = MappingProxyType({})) -> Prices:
    """Return the price list of a run. `bases` maps teachers that are saved weights to their base model,
    whose price applies. Those with an unknown base model get no price.

    Raises:
        ConfigError: a budget in dollars is set, and a model that the run uses and that can cost dollars has no price.
    """
    prices = _listed(config, bases)
    teachers = config.tinker.named_teachers.values()
    usage = {
        name: Tokens(1, 1, 1)
        for name in teachers
        if name in bases or not name.startswith(SAVED)
    }
    usage[config.tinker.student] = Tokens(1, 1, 1, 1)
    if config.learning.imitates_endpoint:
        usage.setdefault(str(config.learning.warm_start_model), Tokens(prefill=1, sample=1))
    watched = config.cost.budget_usd is not None and not config.is_free
    if watched and total_dollars(usage, prices) is None:
        raise no_price(usage, prices, "cost.budget_usd cannot be watched")
    return prices
