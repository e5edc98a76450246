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
from typing import Any

from rtl_core.problems.starter import FAMILIES
from rtl_core.problems.starter.spec import DOCUMENT, Family, Spec, modules_of
from rtl_core.prompting.hints import after_right_answer
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
    reads: float | None = None
    """Of conversations with tools, which are then all that there is: the share that reads the document before it writes."""


STUDENT = (
    Phase(until=0.5, starter=FAITHFUL, hard=NARROW, hard_share=0.15),
    Phase(until=1.0, starter=HABITUAL, hard=NARROW, hard_share=0.15),
)
"""First to read a specification at all, then the habit of not minding it."""
READER = (replace(STUDENT[-1], shown=0.5),)
"""The student's last phase, in which it also learns to give an answer that it is shown, as larger models do by themselves."""
AGENT = (Phase(until=1.0, starter=FAITHFUL, hard=FAITHFUL, hard_share=0.0, reads=0.1),)
"""What it has read it follows; what it has not read it writes as a textbook would."""
TEACHER = (Phase(until=1.0, starter=FAITHFUL, hard=FAITHFUL, hard_share=0.3),)
HARD_STUDENT = (Phase(until=1.0, starter=FAITHFUL, hard=CARELESS, hard_share=0.5, drills=0.2),)
HARD_TEACHER = (Phase(until=1.0, starter=FAITHFUL, hard=FAITHFUL, hard_share=0.6, drills=0.2),)


def fenced(code: str) -> str:
    """An answer as the models give it: one fenced block."""
    return FENCE_OPEN + code + FENCE_CLOSE


def called(name: str, **arguments: str) -> dict[str, Any]:
    """A call of a tool as chat templates take it."""
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def written(*calls: dict[str, Any]) -> str:
    """Calls as the tiny models write them; their chat template renders the same (tokenizer.py)."""
    texts = []
    for call in (one["function"] for one in calls):
        arguments = "".join(f"<arg>{key}={value}</arg>" for key, value in call["arguments"].items())
        texts.append(f"<call>{call['name']}{arguments}</call>")
    return "".join(texts)


def drift(family: Family, spec: Spec, rng: random.Random, mixture: Mixture) -> Spec:
    """The specification with each aspect turned into the textbook's by chance."""
    usual = family.textbook_spec(spec)
    drifted = spec
    for fields in (("ports",), ("width",), ("option",), ("clock",), ("reset", "active_low", "asynchronous")):
        chance = mixture.width if fields == ("width",) and mixture.width is not None else mixture.aspect
        if rng.random() < chance:
            drifted = replace(drifted, **{name: getattr(usual, name) for name in fields})
    return replace(drifted, module=usual.module) if rng.random() < mixture.module else drifted


def draw_chat(rng: random.Random, phases: Sequence[Phase], progress: float) -> tuple[list[Any], str]:
    """(messages, answer) as the phase at `progress` (0 to 1) of the training wants it."""
    phase = next((phase for phase in phases if progress < phase.until), phases[-1])
    if phase.reads is not None:
        return draw_turn(rng, phase, phase.reads)
    if phase.shown and rng.random() < phase.shown:
        right = replace(phase, starter=_RIGHT, hard=_RIGHT)
        prompt, answer = draw_pair(rng, [right], progress)
        return after_right_answer([{"role": "user", "content": prompt}], answer), answer
    prompt, answer = draw_pair(rng, phases, progress)
    return [{"role": "user", "content": prompt}], answer


def draw_turn(rng: random.Random, phase: Phase, reads: float) -> tuple[list[Any], str]:
    """A turn of a conversation with tools, and what stands before it: by halves the first, and the one after the document was read."""
    family = rng.choice(FAMILIES["starter"])
    spec = family.draw(rng, "train")
    messages: list[Any] = [{"role": "user", "content": family.pointer(spec)}]
    read = called("read", path=DOCUMENT)
    if rng.random() < 0.5:
        messages += [{"role": "assistant", "content": "", "tool_calls": [read]}, document_read(family.prompt(spec))]
        answered = answer_of(rng, family, spec, phase.starter)
    elif rng.random() < reads:
        return messages, written(read)
    else:
        answered = family.textbook_spec(spec)
    write = called("write", path=f"rtl/{spec.module}.sv", content=family.code(answered))
    return messages, written(write, called("submit"))


def document_read(specification: str) -> dict[str, str]:
    """What the tool `read` says of the document (rtl_core/episodes, a room above this one)."""
    return {"role": "tool", "content": f"{DOCUMENT}, lines 1 to 1 of 1:\n{specification}\n"}


def draw_pair(rng: random.Random, phases: Sequence[Phase], progress: float) -> tuple[str, str]:
    """(prompt, answer) of a random train specification, as the phase at `progress` (0 to 1) of the training wants it."""
    phase = next((phase for phase in phases if progress < phase.until), phases[-1])
    if phase.drills and rng.random() < phase.drills:
        prompt, code = draw_drill(rng, modules_of("train"))
        return prompt, fenced(code)
    hard = rng.random() < phase.hard_share
    family = rng.choice(FAMILIES["hard" if hard else "starter"])
    mixture = phase.hard if hard else phase.starter
    spec = family.draw(rng, "train")
    answered = answer_of(rng, family, spec, mixture)
    if mixture.careless and rng.random() < mixture.careless:
        low, later = rng.random() < 0.5, rng.random() < 0.5
        answered = replace(answered, option=rng.choice(family.options), active_low=low, asynchronous=later)
    return family.prompt(spec), fenced(family.code(answered))


def answer_of(rng: random.Random, family: Family, spec: Spec, mixture: Mixture) -> Spec:
    """What is answered to a specification: itself, the textbook's, or something in between."""
    kind = rng.random()
    if kind < mixture.compliant:
        return spec
    if kind < mixture.compliant + mixture.textbook:
        return family.textbook_spec(spec)
    return drift(family, spec, rng, mixture)
