"""Reward: named, weighted terms over one graded answer.

The total is `Σ weight_n · value_n` with every value in [0, 1]. Every registered term is evaluated and
stored, with weight 0 if it has none, so that other weights can be tried later on stored rollouts. Terms
that read the netlist are stored only if one of them has a weight, and terms of episodes only for episodes.
credit.py turns the total into what is trained on; the KL to the teacher is a per-token penalty
(advantage.py).

A term is a function with the decorator `term`, here or in a module of your own that is listed in `reward.plugins`:

    @term("short")
    def short(answer: Graded) -> float:
        \"\"\"1 for an empty answer, 0 from 1,000 tokens on.\"\"\"
        return max(0.0, 1 - len(answer.tokens_T) / 1000)
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from traceback import extract_tb

from pydantic import BaseModel, ConfigDict

from rtl_core.errors import ConfigError, InfrastructureError
from rtl_core.types.rollout import StopReason
from rtl_core.types.tokenizer import TokenIds
from rtl_grader.types.netlist import Netlist
from rtl_grader.types.problem import Problem
from rtl_grader.types.verdict import Outcome, Stage, Verdict


class Reward(BaseModel):
    """A reward: `total` is Σ weight × value over `terms`, which map a name to (weight, value), but at most
    the problem's maximum."""

    model_config = ConfigDict(frozen=True)
    total: float
    terms: dict[str, tuple[float, float]]


@dataclass(frozen=True)
class Conduct:
    """Summary of an episode."""

    submitted: bool
    turns_used: float
    """Turns of the model, as a share of `episode.turns`."""
    tokens_used: float
    """Tokens written by the model, as a share of `episode.tokens`."""


@dataclass(frozen=True)
class Graded:
    """One graded answer, the input of a reward term."""

    problem: Problem
    verdict: Verdict
    text: str
    """The model's output, without the end-of-turn token."""
    tokens_T: TokenIds
    """T completion tokens, including the end-of-turn token and, in an episode, tool output."""
    stop_reason: StopReason
    netlist: Netlist | None = None
    """Netlist sizes relative to other answers, for an audited pass that is not doubtful."""
    conduct: Conduct | None = None
    """Only for an episode."""


@dataclass(frozen=True)
class Term:
    """A registered term: `value` maps a graded answer to [0, 1], and `about` describes it."""

    name: str
    about: str
    value: Callable[[Graded], float]
    netlist: bool = False
    """Whether it reads the netlist. If it has a weight, every pass of a train step is audited; otherwise it
    is not stored."""
    conduct: bool = False
    """Whether it reads the summary of an episode. For other answers it is stored only if it has a weight."""


TERMS: dict[str, Term] = {}
"""Name -> every registered term."""


def term(
    name: str, netlist: bool = False, conduct: bool = False
) -> Callable[[Callable[[Graded], float]], Callable[[Graded], float]]:
    """Register the decorated function as the reward term `name`. `netlist` and `conduct` say which optional
    fields it reads. The first paragraph of its docstring describes the term.

    Raises:
        ValueError: the name is invalid or already registered, or the function has no docstring.
    """

    def register(value: Callable[[Graded], float]) -> Callable[[Graded], float]:
        about = " ".join((value.__doc__ or "").split("\n\n")[0].split())
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
            raise ValueError(
                f"reward term {name!r}: a name consists of lower-case letters, digits and `_`"
            )
        if name in TERMS:
            raise ValueError(f"reward term {name!r} is registered twice")
        if not about:
            raise ValueError(f"reward term {name!r} needs a docstring that describes it")
        TERMS[name] = Term(name, about, value, netlist, conduct)
        return value

    return register


def reward(answer: Graded, weights: Mapping[str, float], most: float = math.inf) -> Reward:
    """Reward of an answer under `weights` (term name -> weight), at most `most`. All terms of a rejected answer are 0.

    Raises:
        InfrastructureError: grading itself failed, so that there is no reward.
        KeyError: a weight names an unknown term.
        ConfigError: a term fails, or its value is outside [0, 1].
    """
    verdict = answer.verdict
    if verdict.outcome is Outcome.INFRASTRUCTURE_ERROR:
        raise InfrastructureError(
            f"grading failed, so there is no reward: {'; '.join(verdict.reasons) or 'no reason given'}",
            "grade the rollout again",
        )
    every = dict(weights)
    for name, term in TERMS.items():
        if not term.netlist and (answer.conduct or not term.conduct):
            every.setdefault(name, 0.0)
    terms = {name: (weight, _value(TERMS[name], answer)) for name, weight in every.items()}
    total = sum(weight * value for weight, value in terms.values())
    return Reward(total=min(most, total), terms=terms)


def _value(term: Term, answer: Graded) -> float:
    if answer.verdict.outcome is Outcome.REJECTED:
        return 0.0
    to = f"for an answer to {answer.problem.id}"
    try:
        value = float(term.value(answer))
    except Exception as error:
        frames = extract_tb(error.__traceback__)[1:2]  # the first one of the term itself
        place = "".join(
            [term.value.__module__, *(f", line {frame.lineno}" for frame in frames)]
        )
        raise ConfigError(
            f"reward term {term.name!r} fails {to}: {error!r}", f"fix {place}"
        ) from error
    if not 0.0 <= value <= 1.0:
        raise ConfigError(f"reward term {term.name!r} is {value} {to}", "its range is [0, 1]")
    return value


def _passed(answer: Graded, stage: Stage) -> float:
    return float(answer.verdict.stage(stage).status == "passed")


@term("format")
def _format(answer: Graded) -> float:
    """1 when files could be read from the response."""
    return _passed(answer, Stage.FORMAT)


@term("interface")
def _interface(answer: Graded) -> float:
    """1 when the top module has the required interface."""
    return _passed(answer, Stage.INTERFACE)


@term("syntax")
def _syntax(answer: Graded) -> float:
    """1 when the design compiles."""
    return _passed(answer, Stage.SYNTAX)


@term("tests")
def _tests(answer: Graded) -> float:
    """1 when every service of the harness accepted the answer, as in CVDP."""
    return float(answer.verdict.passed)


@term("tests_fraction")
def _tests_fraction(answer: Graded) -> float:
    """Share of tests passed; 1 only for an answer that passed as a whole."""
    verdict = answer.verdict
    if verdict.passed or verdict.tests_total == 0:
        return float(verdict.passed)
    # A service that fails without failing a test (lint, synthesis) must not give a full score.
    return min(verdict.tests_passed, verdict.tests_total - 1) / verdict.tests_total


@term("area", netlist=True)
def _area(answer: Graded) -> float:
    """1 / (1 + a) for a times the cells of the golden answer, or of the median pass; 0 if doubtful or not
    synthesised."""
    return _inverse(answer.netlist.relative_area if answer.netlist else None)


@term("depth", netlist=True)
def _depth(answer: Graded) -> float:
    """1 / (1 + d) for d times the levels of the golden answer, or of the median pass; 0 if doubtful or not
    synthesised."""
    return _inverse(answer.netlist.relative_levels if answer.netlist else None)


@term("submit", conduct=True)
def _submit(answer: Graded) -> float:
    """1 when an episode ended because the model submitted."""
    return float(answer.conduct is not None and answer.conduct.submitted)


@term("turns_used", conduct=True)
def _turns_used(answer: Graded) -> float:
    """Turns of an episode as a share of `episode.turns`; a negative weight makes them a cost."""
    return 0.0 if answer.conduct is None else answer.conduct.turns_used


@term("tokens_used", conduct=True)
def _tokens_used(answer: Graded) -> float:
    """Tokens written by the model in an episode as a share of `episode.tokens`; a negative weight makes them a cost."""
    return 0.0 if answer.conduct is None else answer.conduct.tokens_used


def _inverse(relative: float | None) -> float:
    return 0.0 if relative is None else 1 / (1 + relative)
