"""Tokens by kind, and what they cost.

What is counted, per model:

- sampling a group of G answers to one prompt of P tokens: P prefill, (G − 1)·P cached, Σ T sample;
- an episode: each later turn reads all that stands before it, of which what its former turn had read is cached, the rest prefill;
- the teacher's log-probabilities of a group: P + Σ T prefill, (G − 1)·P cached, and one sample token each, which the request
  must ask for although nobody reads it; with its likeliest tokens at each position (distribution distillation) the same;
- a train step: P + T − 1 train tokens for each datum that was sent. Of a run that is what its steps recorded (`steps.train_tokens`, see
  backend/base.py): rollouts that taught nothing, masked ones and quarantined groups are sampled and not trained on;
- a forward pass of the trainer (distribution distillation but for on-policy forward KL, renormalised): as a train step, which is the most
  that it can be charged as.

Not counted: prompts that the service has forgotten between two requests of a group (prefill instead of cached), work that a
crash threw away and that was done again, storage of checkpoints, and your own machine.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import date
from importlib import resources
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rtl_core.errors import ConfigError

MILLION = 1_000_000


@dataclass(frozen=True)
class Tokens:
    """Tokens of one model by kind; fractions occur in estimates."""

    prefill: float = 0
    cached: float = 0
    sample: float = 0
    train: float = 0

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(*(getattr(self, kind) + getattr(other, kind) for kind in KINDS))

    def __mul__(self, factor: float) -> Tokens:
        return Tokens(*(getattr(self, kind) * factor for kind in KINDS))

    def by_kind(self) -> dict[str, float]:
        """Kind -> tokens, in the order of the price list."""
        return {kind: getattr(self, kind) for kind in KINDS}


KINDS = tuple(field.name for field in fields(Tokens))
Usage = Mapping[str, Tokens]
"""Model name -> its tokens."""


class ModelPrice(BaseModel):
    """USD per million tokens of one model; None for what it is not used for."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    prefill: float | None = Field(default=None, ge=0)
    cached: float | None = Field(default=None, ge=0)
    sample: float | None = Field(default=None, ge=0)
    train: float | None = Field(default=None, ge=0)


class Prices(BaseModel):
    """A dated price list."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    as_of: date
    source: str = ""
    models: dict[str, ModelPrice]


def load_prices(path: Path | None = None) -> Prices:
    """The price list at `path`, or the one that comes with the package.

    Raises:
        ConfigError: no such file, no TOML, or a key that is none of a price list.
    """
    place = Path(str(resources.files("rtl_core.cost") / "prices.toml")) if path is None else path
    try:
        return Prices.model_validate(tomllib.loads(place.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise ConfigError(f"there is no price list {place}", "put it there or change cost.prices") from None
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise ConfigError(
            f"{place} is no price list: {error}", "take rtl_core/cost/prices.toml as the pattern"
        ) from None


def sampled(prompt: float, completions: Sequence[float]) -> Tokens:
    """Tokens of sampling one group: a prompt of `prompt` tokens, completions of the given lengths."""
    if not completions:
        return Tokens()
    return Tokens(prefill=prompt, cached=prompt * (len(completions) - 1), sample=sum(completions))


def later_turns(prompt: int, own_T: Sequence[bool]) -> Tokens:
    """Tokens that the turns of an episode behind the first read. `own_T`: which of its T tokens the model sampled; a turn is a run of them."""
    starts = [t for t, own in enumerate(own_T) if own and not (t and own_T[t - 1])]
    return Tokens(prefill=max(starts, default=0), cached=sum(prompt + start for start in starts[:-1]))


def scored(prompt: float, completions: Sequence[float]) -> Tokens:
    """The teacher's tokens for the log-probabilities of one group."""
    if not completions:
        return Tokens()
    return Tokens(
        prefill=prompt + sum(completions), cached=prompt * (len(completions) - 1), sample=float(len(completions))
    )


def trained(prompt: float, completions: Sequence[float]) -> Tokens:
    """Tokens of training on rollouts of one prompt, for an estimate; what a run trained on is recorded."""
    return Tokens(train=sum(prompt + length - 1 for length in completions))


def together(usages: Iterable[Usage]) -> dict[str, Tokens]:
    """The sum of several usages, model by model."""
    total: dict[str, Tokens] = {}
    for usage in usages:
        for model, tokens in usage.items():
            total[model] = total.get(model, Tokens()) + tokens
    return total


def dollars(tokens: Tokens, price: ModelPrice) -> dict[str, float | None]:
    """Kind -> USD; None where tokens were used that the list has no price for."""
    costs: dict[str, float | None] = {}
    for kind, count in tokens.by_kind().items():
        rate = getattr(price, kind)
        costs[kind] = 0.0 if not count else None if rate is None else count * rate / MILLION
    return costs


def total_dollars(usage: Usage, prices: Prices) -> float | None:
    """USD of a usage; None when the list lacks a price that it needs."""
    total = 0.0
    for model, tokens in usage.items():
        for cost in dollars(tokens, prices.models.get(model, ModelPrice())).values():
            if cost is None:
                return None
            total += cost
    return total


def unpriced(usage: Usage, prices: Prices) -> list[str]:
    """`model: kind` of everything that is used and has no price."""
    return [
        f"{model}: {kind}"
        for model, tokens in usage.items()
        for kind, cost in dollars(tokens, prices.models.get(model, ModelPrice())).items()
        if cost is None
    ]
