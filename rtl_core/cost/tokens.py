"""Tokens by kind, and their cost.

Counted per model, with the service's own count of cached prompt tokens for what a run has sampled (`as_billed`):

- sampling a group of G answers to one prompt of P tokens: P prefill, (G − 1)·P cached, Σ T sample;
- an episode: each later turn reads everything before it, of which the part read by the previous turn is
  cached, the rest prefill;
- the teacher's log-probabilities of a group: P + Σ T prefill, (G − 1)·P cached, and one sample token each,
  which the request must include although it is not used. The same with the likeliest, or named, tokens at each
  position (distribution distillation);
- a train step: P + T − 1 train tokens per datum sent. For a run these are the recorded `steps.train_tokens`
  (backend/base.py): masked rollouts, those without an advantage, and quarantined groups are sampled but not
  trained on;
- a forward pass of the trainer (distribution distillation, except on-policy with the student's choices, or with
  forward KL, renormalised): as a train step, an upper bound.

Not counted: in estimates and scores, prompts that the service dropped from its cache between two requests of a
group (prefill instead of cached); work repeated after a crash, storage of checkpoints, and your own machine.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from operator import add
from pathlib import Path

from pydantic import BaseModel, ConfigDict, NonNegativeFloat, ValidationError

from rtl_core.errors import ConfigError
from rtl_grader.words import did_you_mean

MILLION = 1_000_000
COPY_PRICES = (
    "copy rtl_core/cost/prices.toml, add them (zeros for an engine that costs nothing), and name the copy with "
    "cost.prices"
)


@dataclass(frozen=True)
class Tokens:
    """Tokens of one model by kind. Estimates contain fractions."""

    prefill: float = 0
    cached: float = 0
    sample: float = 0
    train: float = 0

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(*map(add, vars(self).values(), vars(other).values()))

    def __mul__(self, factor: float) -> Tokens:
        return Tokens(*(count * factor for count in vars(self).values()))

    def by_kind(self) -> dict[str, float]:
        """Return a mapping of kind to tokens, in the order of the price list."""
        return asdict(self)


Usage = Mapping[str, Tokens]
"""Mapping of model name to its tokens."""


class ModelPrice(BaseModel):
    """Prices of one model in USD per million tokens; None for unused kinds."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    prefill: NonNegativeFloat | None = None
    cached: NonNegativeFloat | None = None
    sample: NonNegativeFloat | None = None
    train: NonNegativeFloat | None = None


class Prices(BaseModel):
    """A dated price list."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    as_of: date
    source: str = ""
    models: dict[str, ModelPrice]


def load_prices(path: Path | None = None) -> Prices:
    """Load the price list at `path`. Default: the one in the package. Raises ConfigError if it does not
    exist or is invalid."""
    place = path or Path(__file__).with_name("prices.toml")
    try:
        return Prices.model_validate(tomllib.loads(place.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise ConfigError(
            f"there is no price list {place}", "put it there or change cost.prices"
        ) from None
    except (OSError, ValueError) as error:
        why = str(error)
        if isinstance(error, ValidationError):
            mistakes = [(".".join(map(str, one["loc"])), one["msg"]) for one in error.errors()]
            why = "; ".join(f"`{key}`: {message}" for key, message in mistakes)
        raise ConfigError(
            f"{place} is not a price list: {why}", "use rtl_core/cost/prices.toml as a template"
        ) from None


def sampled(prompt: float, completions: Sequence[float]) -> Tokens:
    """Return the tokens of sampling one group, given the lengths of prompt and completions."""
    if not completions:
        return Tokens()
    return Tokens(
        prefill=prompt, cached=prompt * (len(completions) - 1), sample=sum(completions)
    )


def later_turns(prompt: int, own_T: Sequence[bool]) -> Tokens:
    """Return the tokens read by an episode's turns after the first. `own_T`: which of its T tokens the
    model sampled; a turn is a run of them."""
    starts = [t for t, own in enumerate(own_T) if own and not (t and own_T[t - 1])]
    cached = sum(prompt + start for start in starts[:-1])
    return Tokens(prefill=max(starts, default=0), cached=cached)


def as_billed(tokens: Tokens, cached: float | None) -> Tokens:
    """Return tokens of sampling, of whose prompts the service read `cached` tokens from its cache (None: unknown)."""
    if cached is None:
        return tokens
    return replace(tokens, prefill=tokens.prefill + tokens.cached - cached, cached=cached)


def scored(prompt: float, completions: Sequence[float]) -> Tokens:
    """Return the teacher's tokens for the log-probabilities of one group."""
    if not completions:
        return Tokens()
    return Tokens(
        prefill=prompt + sum(completions),
        cached=prompt * (len(completions) - 1),
        sample=float(len(completions)),
    )


def trained(prompt: float, completions: Sequence[float]) -> Tokens:
    """Estimate the tokens of training on rollouts of one prompt. For a run they are recorded."""
    return Tokens(train=sum(prompt + length - 1 for length in completions))


def together(usages: Iterable[Usage]) -> dict[str, Tokens]:
    """Return the sum of several usages by model."""
    total: dict[str, Tokens] = {}
    for usage in usages:
        for model, tokens in usage.items():
            total[model] = total.get(model, Tokens()) + tokens
    return total


def dollars(tokens: Tokens, price: ModelPrice) -> dict[str, float | None]:
    """Return a mapping of kind to USD; None if tokens were used and the price is missing."""
    costs: dict[str, float | None] = {}
    for kind, count in tokens.by_kind().items():
        rate = getattr(price, kind)
        costs[kind] = 0.0
        if count:
            costs[kind] = None if rate is None else count * rate / MILLION
    return costs


def total_dollars(usage: Usage, prices: Prices) -> float | None:
    """Return the USD of a usage; None if a required price is missing."""
    costs = _costs(usage, prices).values()
    return None if None in costs else sum(filter(None, costs), 0.0)


def unpriced(usage: Usage, prices: Prices) -> list[str]:
    """Return `model: kind` for all used tokens without a price."""
    return [name for name, cost in _costs(usage, prices).items() if cost is None]


def no_price(usage: Usage, prices: Prices, why: str) -> ConfigError:
    """Return the error for a usage of which `unpriced` names a part: `why` it matters, what is missing, what to do."""
    missing = unpriced(usage, prices)
    near = did_you_mean(missing[0].rpartition(":")[0], prices.models, "")
    return ConfigError(
        f"{why}: the price list of {prices.as_of} has no price for {', '.join(missing)}",
        f"{COPY_PRICES}; {near}".rstrip("; "),
    )


def _costs(usage: Usage, prices: Prices) -> dict[str, float | None]:
    costs = {}
    for model, tokens in usage.items():
        price = prices.models.get(model, ModelPrice())
        for kind, cost in dollars(tokens, price).items():
            costs[f"{model}: {kind}"] = cost
    return costs
