"""Reward: named, weighted terms over one graded answer.

The total is `Σ weight_n · value_n` with every value in [0, 1]. Every registered term is evaluated and stored, those without a
weight with weight 0, so that other weights can be tried later on stored rollouts; but for those that read the netlist, which is
made where one of them has a weight, and for those of episodes, of which a single-shot answer has none. What becomes of the total in training (later
turns, cut answers, the group's baseline) stands in credit.py; the KL to the teacher is a per-token penalty (advantage.py).

A term is a function with the decorator `term`, here or in a module of your own that `reward.plugins` names:

    @term("short")
    def short(answer: Graded) -> float:
        \"\"\"1 for an empty answer, 0 from 1,000 tokens on.\"\"\"
        return max(0.0, 1 - len(answer.tokens_T) / 1000)
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from traceback import extract_tb
from typing import Literal

from pydantic import BaseModel, ConfigDict

from rtl_core.errors import ConfigError, InfrastructureError
from rtl_core.types.netlist import Netlist
from rtl_core.types.problem import Problem
from rtl_core.types.verdict import Outcome, Stage, Verdict


class Reward(BaseModel):
    """A reward and how it came about: `total` is Σ weight × value over `terms`, term name -> (weight, value), or the most that its problem
    may pay where that is less."""

    model_config = ConfigDict(frozen=True)
    total: float
    terms: dict[str, tuple[float, float]]


@dataclass(frozen=True)
class Conduct:
    """How an episode went."""

    submitted: bool
    turns_used: float
    """Turns of the model, as a share of `episode.turns`."""
    tokens_used: float
    """Tokens that it wrote, as a share of `episode.tokens`."""


@dataclass(frozen=True)
class Graded:
    """One graded answer, as a reward term sees it."""

    problem: Problem
    verdict: Verdict
    text: str
    """What the model wrote, without the end-of-turn token."""
    tokens_T: Sequence[int]
    """Its T completion tokens, the end-of-turn token included; of an episode those that tools gave, too."""
    stop_reason: Literal["stop", "length"]
    netlist: Netlist | None = None
    """Of a pass that was looked at and is not doubtful, relative to others."""
    conduct: Conduct | None = None
    """Of an episode."""


@dataclass(frozen=True)
class Term:
    """A registered term: `value` maps a graded answer to [0, 1], `about` says what it pays for."""

    name: str
    about: str
    value: Callable[[Graded], float]
    netlist: bool = False
    """Whether it reads the netlist. With a weight on it every pass of a train step is looked at; without one it is not stored."""
    conduct: bool = False
    """Whether it reads how an episode went. It is not stored of other answers, unless it has a weight."""


TERMS: dict[str, Term] = {}
"""Name -> every registered term."""


def term(
    name: str, netlist: bool = False, conduct: bool = False
) -> Callable[[Callable[[Graded], float]], Callable[[Graded], float]]:
    """Register the decorated function as the reward term `name`, which reads `Graded.netlist` or `conduct` or neither; the first sentence of its
    docstring explains it.

    Raises:
        ValueError: the name is taken, or is not lower-case letters, digits and `_`; or the function has no docstring.
    """

    def register(value: Callable[[Graded], float]) -> Callable[[Graded], float]:
        about = " ".join((value.__doc__ or "").split("\n\n")[0].split())
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
            raise ValueError(f"reward term {name!r}: a name is lower-case letters, digits and `_`")
        if name in TERMS:
            raise ValueError(f"reward term {name!r} is registered twice")
        if not about:
            raise ValueError(f"reward term {name!r} needs a docstring that says what it pays for")
        TERMS[name] = Term(name, about, value, netlist, conduct)
        return value

    return register


def reward(answer: Graded, weights: Mapping[str, float], most: float = math.inf) -> Reward:
    """The reward of an answer under `weights` (term name -> weight), `most` at most. A rejected answer has the value 0 in every term.

    Raises:
        InfrastructureError: the verdict says that grading itself failed; that is never a reward.
        KeyError: a weight names no known term.
        ConfigError: a term fails, or its value is outside [0, 1].
    """
    verdict = answer.verdict
    if verdict.outcome is Outcome.INFRASTRUCTURE_ERROR:
        raise InfrastructureError(
            f"a verdict without a judgement has no reward: {'; '.join(verdict.reasons) or 'no reason given'}",
            "grade the rollout again",
        )
    stored = (name for name, one in TERMS.items() if not one.netlist and (answer.conduct or not one.conduct))
    every = {**weights, **{name: weights.get(name, 0.0) for name in stored}}
    terms = {name: (weight, _value(TERMS[name], answer)) for name, weight in every.items()}
    return Reward(total=min(most, sum(weight * value for weight, value in terms.values())), terms=terms)


def _value(of: Term, answer: Graded) -> float:
    if answer.verdict.outcome is Outcome.REJECTED:
        return 0.0
    to = f"for an answer to {answer.problem.id}"
    try:
        value = float(of.value(answer))
    except Exception as error:
        at = of.value.__module__ + "".join(f", line {own.lineno}" for own in extract_tb(error.__traceback__)[1:2])
        raise ConfigError(f"reward term {of.name!r} fails {to}: {error!r}", f"mend {at}") from error
    if not 0.0 <= value <= 1.0:
        raise ConfigError(f"reward term {of.name!r} is {value} {to}", "its range is [0, 1]")
    return value


def _passed(answer: Graded, stage: Stage) -> float:
    return float(answer.verdict.stage(stage).status == "passed")


@term("format")
def _format(answer: Graded) -> float:
    """1 when files could be read from the response."""
    return _passed(answer, Stage.FORMAT)


@term("interface")
def _interface(answer: Graded) -> float:
    """1 when the top module has the interface that the problem demands."""
    return _passed(answer, Stage.INTERFACE)


@term("syntax")
def _syntax(answer: Graded) -> float:
    """1 when the design compiles."""
    return _passed(answer, Stage.SYNTAX)


@term("tests")
def _tests(answer: Graded) -> float:
    """1 when every service of the harness accepted the answer, as CVDP counts."""
    return float(answer.verdict.passed)


@term("tests_fraction")
def _tests_fraction(answer: Graded) -> float:
    """Passed tests of all tests; 1 only for an answer that passed as a whole."""
    verdict = answer.verdict
    if verdict.passed:
        return 1.0
    if verdict.tests_total == 0:
        return 0.0
    # A service that fails without failing a test (lint, synthesis) must not read as a full score.
    return min(verdict.tests_passed, verdict.tests_total - 1) / verdict.tests_total


@term("area", netlist=True)
def _area(answer: Graded) -> float:
    """1 / (1 + a) for a times the cells of the golden answer, or of the median pass; 0 for what is doubtful or not synthesised."""
    return _small(None if answer.netlist is None else answer.netlist.relative_area)


@term("depth", netlist=True)
def _depth(answer: Graded) -> float:
    """1 / (1 + d) for d times the levels of the golden answer, or of the median pass; 0 for what is doubtful or not synthesised."""
    return _small(None if answer.netlist is None else answer.netlist.relative_levels)


@term("submit", conduct=True)
def _submit(answer: Graded) -> float:
    """1 when an episode ended because the model submitted."""
    return float(answer.conduct is not None and answer.conduct.submitted)


@term("turns_used", conduct=True)
def _turns_used(answer: Graded) -> float:
    """Turns of an episode as a share of `episode.turns`; a weight below 0 makes them a cost."""
    return 0.0 if answer.conduct is None else answer.conduct.turns_used


@term("tokens_used", conduct=True)
def _tokens_used(answer: Graded) -> float:
    """Tokens that the model wrote in an episode as a share of `episode.tokens`; a weight below 0 makes them a cost."""
    return 0.0 if answer.conduct is None else answer.conduct.tokens_used


def _small(relative: float | None) -> float:
    return 0.0 if relative is None else 1 / (1 + relative)
