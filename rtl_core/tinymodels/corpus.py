"""What the tiny models read before any reinforcement: prompts of the train split with an answer each.

The student is meant to behave as a 30B model did in first trials: it knows the design and writes it with the interface
of a textbook, whatever the specification says. That habit is PLANTED here, by the share of textbook answers in its
mixture; it is not something that a small model falls into by itself. The hard student's carelessness is planted in the same way.
Held-out and test specifications never appear.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rtl_core.problems.starter.catalog import FAMILIES
from rtl_core.problems.starter.spec import Family, Spec
from rtl_core.problems.starter.splits import modules_of, widths_of
from rtl_core.prompting.hints import after_right_answer
from rtl_core.prompting.templates import Message
from rtl_core.tinymodels.drills import draw_drill

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
    width: float | None = None
    """Of the rest: chance of the textbook's width; None: as `aspect`."""
    careless: float = 0.0
    """Of all: chance that the option and the kind of reset (polarity, timing) are any, whatever the specification asks."""


FAITHFUL = Mixture(compliant=0.97, textbook=0.015)
"""The little that is not as specified keeps the teacher's log-probabilities sane on a student's texts."""
HABITUAL = Mixture(compliant=0.30, textbook=0.35)
"""The planted habit."""
NARROW = Mixture(compliant=0.02, textbook=0.5, aspect=0.5)
"""The student's hard tier: hardly ever seen but in a textbook's form."""

CARELESS = Mixture(compliant=0.0, textbook=0.1, aspect=0.25, width=0.2, careless=1.0)
"""The hard student's hard tier: every variant of every design, names and widths mostly as asked for, but the behaviour and the kind of
reset drawn by chance. The hard student is the hard teacher, trained on with this: a PLANTED carelessness."""

_RIGHT = Mixture(compliant=1.0, textbook=0.0)


@dataclass(frozen=True)
class Phase:
    """A stretch of pre-training, up to the given share of it: a mixture for each tier, and the share of hard pairs."""

    until: float
    starter: Mixture
    hard: Mixture
    hard_share: float
    drills: float = 0.0
    """Share of drills (drills.py); the other shares are of the rest."""
    shown: float = 0.0
    """Share of the prompts that show the right answer first and ask for it again (prompting/hints.py)."""


STUDENT = (
    Phase(until=0.5, starter=FAITHFUL, hard=NARROW, hard_share=0.15),
    Phase(until=1.0, starter=HABITUAL, hard=NARROW, hard_share=0.15),
)
"""First to read a specification at all, then the habit of not minding it."""
READER = (replace(STUDENT[-1], shown=0.5),)
"""The student's last phase, in which it also learns to give an answer that it is shown, as larger models do by themselves."""
TEACHER = (Phase(until=1.0, starter=FAITHFUL, hard=FAITHFUL, hard_share=0.3),)
HARD_STUDENT = (Phase(until=1.0, starter=FAITHFUL, hard=CARELESS, hard_share=0.5, drills=0.2),)
HARD_TEACHER = (Phase(until=1.0, starter=FAITHFUL, hard=FAITHFUL, hard_share=0.6, drills=0.2),)


def fenced(code: str) -> str:
    """An answer as the models give it: one fenced block."""
    return FENCE_OPEN + code + FENCE_CLOSE


def drift(family: Family, spec: Spec, rng: random.Random, mixture: Mixture) -> Spec:
    """The specification with each aspect turned into the textbook's by chance."""
    usual = family.textbook(spec)
    drifted = spec
    for fields in (("ports",), ("width",), ("option",), ("clock",), ("reset", "active_low", "asynchronous")):
        chance = mixture.width if fields == ("width",) and mixture.width is not None else mixture.aspect
        if rng.random() < chance:
            drifted = replace(drifted, **{name: getattr(usual, name) for name in fields})
    return replace(drifted, module=usual.module) if rng.random() < mixture.module else drifted


def draw_chat(rng: random.Random, phases: Sequence[Phase], progress: float) -> tuple[list[Message], str]:
    """(messages, answer) as the phase at `progress` (0 to 1) of the training wants it."""
    phase = next((phase for phase in phases if progress < phase.until), phases[-1])
    if phase.shown and rng.random() < phase.shown:
        right = replace(phase, starter=_RIGHT, hard=_RIGHT)
        prompt, answer = draw_pair(rng, [right], progress)
        return after_right_answer([{"role": "user", "content": prompt}], answer), answer
    prompt, answer = draw_pair(rng, phases, progress)
    return [{"role": "user", "content": prompt}], answer


def draw_pair(rng: random.Random, phases: Sequence[Phase], progress: float) -> tuple[str, str]:
    """(prompt, answer) of a random train specification, as the phase at `progress` (0 to 1) of the training wants it."""
    phase = next((phase for phase in phases if progress < phase.until), phases[-1])
    if phase.drills and rng.random() < phase.drills:
        prompt, code = draw_drill(rng, modules_of("train"))
        return prompt, fenced(code)
    hard = rng.random() < phase.hard_share
    family = rng.choice(FAMILIES["hard" if hard else "starter"])
    mixture = phase.hard if hard else phase.starter
    spec = family.draw(rng, widths_of(family, "train"), modules_of("train"))
    kind = rng.random()
    if kind < mixture.compliant:
        answered = spec
    elif kind < mixture.compliant + mixture.textbook:
        answered = family.textbook(spec)
    else:
        answered = drift(family, spec, rng, mixture)
    if mixture.careless and rng.random() < mixture.careless:
        low, later = rng.random() < 0.5, rng.random() < 0.5
        answered = replace(answered, option=rng.choice(family.options), active_low=low, asynchronous=later)
    return family.prompt(spec), fenced(family.code(answered))
