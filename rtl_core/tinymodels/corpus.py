"""What the tiny models read before any reinforcement: prompts of the train split with an answer each.

The student is meant to behave as a 30B model did in first trials: it knows the design and writes it with the interface
of a textbook, whatever the specification says. That habit is PLANTED here, by the share of textbook answers in its
mixture; it is not something that a small model falls into by itself. Held-out and test specifications never appear.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rtl_core.problems.starter.catalog import BY_NAME
from rtl_core.problems.starter.spec import Family, Spec
from rtl_core.problems.starter.splits import modules_of, widths_of

FENCE_OPEN = "```verilog\n"
FENCE_CLOSE = "```"


@dataclass(frozen=True)
class Mixture:
    """Shares of the kinds of answers: as specified, fully textbook, and for the rest each aspect textbook by chance."""

    compliant: float
    textbook: float
    aspect: float = 0.35
    """Of the rest: chance of each of port names, width, option, clock name and reset to be the textbook's."""
    module: float = 0.15
    """Of the rest: chance of the textbook's module name."""


STUDENT = Mixture(compliant=0.30, textbook=0.35)
TEACHER = Mixture(compliant=0.97, textbook=0.015)


def fenced(code: str) -> str:
    """An answer as the models give it: one fenced block."""
    return FENCE_OPEN + code + FENCE_CLOSE


def drift(family: Family, spec: Spec, rng: random.Random, mixture: Mixture) -> Spec:
    """The specification with each aspect turned into the textbook's by chance."""
    usual = family.textbook(spec)
    drifted = spec
    for fields in (("ports",), ("width",), ("option",), ("clock",), ("reset", "active_low", "asynchronous")):
        if rng.random() < mixture.aspect:
            drifted = replace(drifted, **{name: getattr(usual, name) for name in fields})
    return replace(drifted, module=usual.module) if rng.random() < mixture.module else drifted


def draw_pair(rng: random.Random, families: Sequence[Family], mixture: Mixture) -> tuple[str, str]:
    """(prompt, answer) of one random train specification; the answer drawn from the mixture."""
    family = rng.choice(families)
    spec = family.draw(rng, widths_of(family, "train"), modules_of("train"))
    kind = rng.random()
    if kind < mixture.compliant:
        answered = spec
    elif kind < mixture.compliant + mixture.textbook:
        answered = family.textbook(spec)
    else:
        answered = drift(family, spec, rng, mixture)
    return family.prompt(spec), fenced(family.code(answered))


def all_families() -> list[Family]:
    """Every family of every tier."""
    return list(BY_NAME.values())
