"""Training text of the tiny models: prompts of the train split, each with an answer.

The student should behave as a 30B model did in first trials: it knows the design, but writes it with a
textbook's interface, whatever the specification says. This habit is PLANTED by the share of textbook
answers in its mixture; a small model does not acquire it by itself. The hard student's carelessness is
planted in the same way. Held-out and test specifications never appear.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rtl_core.prompting.hints import after_right_answer
from rtl_core.starter import FAMILIES
from rtl_core.starter.spec import DOCUMENT, Family, Spec, modules_of
from rtl_core.tinymodels.drills import draw_drill

FENCE_OPEN = "```verilog\n"
FENCE_CLOSE = "```"


@dataclass(frozen=True)
class Mixture:
    """Shares of the kinds of answers: as specified, as in a textbook, and mixed, where each aspect may be
    the textbook's."""

    compliant: float
    textbook: float
    aspect: float = 0.35
    """In a mixed answer: probability of the textbook's port names, width, option, clock name and reset, each."""
    module: float = 0.15
    """In a mixed answer: probability of the textbook's module name."""
    width: float | None = None
    """In a mixed answer: probability of the textbook's width; None: as `aspect`."""
    careless: float = 0.0
    """In any answer: probability that the option and the kind of reset (polarity, timing) are random."""


FAITHFUL = Mixture(compliant=0.97, textbook=0.015)
"""The few answers that are not as specified keep the teacher's log-probabilities of a student's answers moderate."""
HABITUAL = Mixture(compliant=0.30, textbook=0.35)
"""The planted habit."""
NARROW = Mixture(compliant=0.02, textbook=0.5, aspect=0.5)
"""The student's hard tier: almost always a textbook's form."""
CARELESS = Mixture(compliant=0.0, textbook=0.1, aspect=0.25, width=0.2, careless=1.0)
"""The hard student's hard tier: names and widths mostly as specified, but a random variant of the design
and a random kind of reset. The hard student is the hard teacher, trained further with this: a PLANTED
carelessness."""
_RIGHT = Mixture(compliant=1.0, textbook=0.0)


@dataclass(frozen=True)
class Phase:
    """A phase of the training, up to the share `until` of it: a mixture for each tier, and the share of the
    hard tier."""

    until: float
    starter: Mixture
    hard: Mixture
    hard_share: float
    drills: float = 0.0
    """Share of drills (drills.py); the other shares refer to the rest."""
    shown: float = 0.0
    """Share of prompts that show the right answer and ask for it again (prompting/hints.py)."""
    reads: float | None = None
    """If set, all text is conversations with tools, and in this share of them the document is read before writing."""


STUDENT = (
    Phase(until=0.5, starter=FAITHFUL, hard=NARROW, hard_share=0.15),
    Phase(until=1.0, starter=HABITUAL, hard=NARROW, hard_share=0.15),
)
"""First learns to follow a specification, then the habit of ignoring it."""
READER = (replace(STUDENT[-1], shown=0.5),)
"""The student's last phase, in which it also learns to repeat an answer that it is shown."""
AGENT = (Phase(until=1.0, starter=FAITHFUL, hard=FAITHFUL, hard_share=0.0, reads=0.1),)
"""Follows a specification that it has read, and otherwise writes the textbook's design."""
TEACHER = (Phase(until=1.0, starter=FAITHFUL, hard=FAITHFUL, hard_share=0.3),)
HARD_STUDENT = (Phase(until=1.0, starter=FAITHFUL, hard=CARELESS, hard_share=0.5, drills=0.2),)
HARD_TEACHER = (Phase(until=1.0, starter=FAITHFUL, hard=FAITHFUL, hard_share=0.6, drills=0.2),)


def fenced(code: str) -> str:
    """Return an answer in the models' format: a fenced block."""
    return FENCE_OPEN + code + FENCE_CLOSE


def tool_call(name: str, **arguments: str) -> dict[str, Any]:
    """Return a tool call in the format of chat templates."""
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def rendered(*calls: dict[str, Any]) -> str:
    """Return tool calls in the tiny models' format, which their chat template renders too (tokenizer.py)."""
    texts = []
    for call in calls:
        function = call["function"]
        items = function["arguments"].items()
        arguments = "".join(f"<arg>{key}={value}</arg>" for key, value in items)
        texts.append(f"<call>{function['name']}{arguments}</call>")
    return "".join(texts)


def drift(family: Family, spec: Spec, rng: random.Random, mixture: Mixture) -> Spec:
    """Return the specification with random aspects replaced by the textbook's."""
    usual = family.textbook_spec(spec)
    drifted = spec
    width = mixture.aspect if mixture.width is None else mixture.width
    for names, chance in (
        (["ports"], mixture.aspect),
        (["width"], width),
        (["option"], mixture.aspect),
        (["clock"], mixture.aspect),
        (["reset", "active_low", "asynchronous"], mixture.aspect),
        (["module"], mixture.module),
    ):
        if rng.random() < chance:
            drifted = replace(drifted, **{name: getattr(usual, name) for name in names})
    return drifted


def draw_chat(
    rng: random.Random, phases: Sequence[Phase], progress: float
) -> tuple[list[Any], str]:
    """Return random (messages, answer) of the phase at `progress` (0 to 1) of the training."""
    phase = _phase_at(phases, progress)
    if phase.reads is not None:
        return draw_turn(rng, phase, phase.reads)
    if phase.shown and rng.random() < phase.shown:
        right = replace(phase, starter=_RIGHT, hard=_RIGHT)
        prompt, answer = draw_pair(rng, [right], progress)
        return after_right_answer([{"role": "user", "content": prompt}], answer), answer
    prompt, answer = draw_pair(rng, phases, progress)
    return [{"role": "user", "content": prompt}], answer


def _phase_at(phases: Sequence[Phase], progress: float) -> Phase:
    return next((phase for phase in phases if progress < phase.until), phases[-1])


def draw_turn(rng: random.Random, phase: Phase, reads: float) -> tuple[list[Any], str]:
    """Return the context and text of a turn with tools: with equal probability the first turn, or the one
    after reading the document."""
    family = rng.choice(FAMILIES["starter"])
    spec = family.draw(rng, "train")
    messages: list[Any] = [{"role": "user", "content": family.pointer(spec)}]
    read = tool_call("read", path=DOCUMENT)
    if rng.random() < 0.5:
        messages += [
            {"role": "assistant", "content": "", "tool_calls": [read]},
            document_read(family.prompt(spec)),
        ]
        written_spec = answer_of(rng, family, spec, phase.starter)
    elif rng.random() < reads:
        return messages, rendered(read)
    else:
        written_spec = family.textbook_spec(spec)
    write = tool_call("write", path=f"rtl/{spec.module}.sv", content=family.code(written_spec))
    return messages, rendered(write, tool_call("submit"))


def document_read(specification: str) -> dict[str, str]:
    """Return the result of the tool `read` for the document (rtl_core/episodes, a room above this one)."""
    return {"role": "tool", "content": f"{DOCUMENT}, lines 1 to 1 of 1:\n{specification}\n"}


def draw_pair(rng: random.Random, phases: Sequence[Phase], progress: float) -> tuple[str, str]:
    """Return (prompt, answer) of a random train specification, from the phase at `progress` (0 to 1) of the
    training."""
    phase = _phase_at(phases, progress)
    if phase.drills and rng.random() < phase.drills:
        prompt, code = draw_drill(rng, modules_of("train"))
        return prompt, fenced(code)
    hard = rng.random() < phase.hard_share
    family = rng.choice(FAMILIES["hard" if hard else "starter"])
    mixture = phase.hard if hard else phase.starter
    spec = family.draw(rng, "train")
    written_spec = answer_of(rng, family, spec, mixture)
    if mixture.careless and rng.random() < mixture.careless:
        low, asynchronous = rng.random() < 0.5, rng.random() < 0.5
        option = rng.choice(family.options)
        written_spec = replace(
            written_spec, option=option, active_low=low, asynchronous=asynchronous
        )
    return family.prompt(spec), fenced(family.code(written_spec))


def answer_of(rng: random.Random, family: Family, spec: Spec, mixture: Mixture) -> Spec:
    """Return the specification that an answer follows: the given one, the textbook's, or a mixture."""
    kind = rng.random()
    if kind < mixture.compliant:
        return spec
    if kind < mixture.compliant + mixture.textbook:
        return family.textbook_spec(spec)
    return drift(family, spec, rng, mixture)
