"""Base class of algorithms, with two hooks: from graded answers to credit, and from credited answers to the
inputs of the loss.

An algorithm sees groups, answers and the run's settings, but no session, history or service. Its formulas are in
rtl_core/learning. To add one, register a class in a file of this package with `@ALGORITHMS.register(name)`, or set
`learning.algorithm` to a class of your own, `module:Class`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from rtl_core.config import RunConfig
from rtl_core.config.learning import DISTRIBUTIONS, SELF_DISTRIBUTIONS
from rtl_core.errors import ConfigError
from rtl_core.history.records import StoredRollout
from rtl_core.learning.credit import Components, Credit, GroupCredit
from rtl_core.learning.reward import Reward
from rtl_core.types.numbers import Floats
from rtl_grader.registry import Registry

Inputs = dict[str, NDArray[Any]]
"""Name of a loss input -> values at the T completion tokens, shape (T,), or (T, K) for several targets."""


@dataclass(frozen=True)
class Group:
    """The G answers to one problem of a step: graded and, if the step uses the KL, scored by the teacher."""

    answers: Sequence[StoredRollout]

    @property
    def rewards(self) -> list[Reward]:
        """Reward of each answer. Raises RuntimeError if one has no verdict."""
        rewards = []
        for stored in self.answers:
            if stored.reward is None:
                raise RuntimeError(
                    f"{stored.rollout.key} has no verdict; it must not be trained on"
                )
            rewards.append(stored.reward)
        return rewards

    @property
    def earned_G(self) -> Floats:
        """Total reward of each answer."""
        return np.array([reward.total for reward in self.rewards], np.float64)

    @property
    def components(self) -> Components:
        """The terms of the rewards that have a weight."""
        terms_G = [reward.terms for reward in self.rewards]
        weights: dict[str, float] = {}
        for terms in terms_G:
            weights |= {name: weight for name, (weight, _) in terms.items() if weight}
        values_GC = [[terms.get(name, (0.0, 0.0))[1] for name in weights] for terms in terms_G]
        return Components(np.array(values_GC, np.float64), np.array([*weights.values()]))

    @property
    def lengths_G(self) -> list[int]:
        """Number of tokens in each completion that the policy sampled."""
        return [stored.rollout.n_own for stored in self.answers]

    @property
    def cut_G(self) -> list[bool]:
        """Whether each was truncated at the token limit, or its episode ended at a limit."""
        return [stored.rollout.stop_reason == "length" for stored in self.answers]

    @property
    def doubtful_G(self) -> list[bool]:
        """Whether each is a doubtful pass."""
        return [stored.audit == "different" for stored in self.answers]


class Algorithm(ABC):
    """An algorithm with the settings of one run."""

    signals: ClassVar[tuple[str, ...]] = ("advantages",)
    """The loss inputs that drive the gradient. An answer for which they are 0 at every token is not sent.
    At tool output in an episode they are always set to 0 (rollouts/datums.py)."""
    normalises_batch: ClassVar[bool] = False
    """Whether a train step divides the advantages by their standard deviation over its answers of this
    algorithm (rollouts/datums.py). Recorded credit is not divided; the step's metrics have the divisor."""

    def __init__(self, config: RunConfig) -> None:
        self.config = config

    @abstractmethod
    def credit(self, group: Group) -> GroupCredit:
        """Credit of a group's answers. Called once per group; the result is recorded unchanged."""

    @abstractmethod
    def loss_inputs(self, answer: StoredRollout, kl_weight: float) -> Inputs:
        """Inputs of the loss for a credited answer that counts, with λ = `kl_weight`."""


def credit_of(answer: StoredRollout) -> Credit:
    """Credit of an answer. Raises RuntimeError if its group was not credited."""
    if answer.credit is None:
        raise RuntimeError(f"{answer.rollout.key} has no credit; it must not be trained on")
    return answer.credit


ALGORITHMS: Registry[type[Algorithm]] = Registry(
    "algorithm",
    "rtl_core.algorithms",
    lambda entry: isinstance(entry, type) and issubclass(entry, Algorithm),
)
"""Name -> class."""


def chosen(config: RunConfig) -> dict[str, type[Algorithm]]:
    """Mapping of name to class of the algorithms of a run, that of `learning.algorithm` first.

    Raises ConfigError if there is none of a name, if `learning.loss` cannot use its inputs, or if those of
    `learning.by_source` have other inputs than the first.
    """
    learning = config.learning
    algorithms: dict[str, type[Algorithm]] = {}
    for key, name in learning.named_algorithms.items():
        try:
            algorithm = algorithms[name] = ALGORITHMS.find(name)
        except ConfigError as error:
            raise ConfigError(f"{key}: {error.message}", error.hint) from None
        if "advantages" not in algorithm.signals:
            raise ConfigError(
                f"{key}: {name} has no advantages, which learning.loss reads",
                "supervised steps at the beginning of a run are learning.warm_start_steps",
            )
        if algorithm.signals != (first := next(iter(algorithms.values()))).signals:
            raise ConfigError(
                f"{key}: {name} has other signals than {first.__name__}, and a step has one loss",
                "choose an algorithm with the same signals",
            )
        if "kl_weights" in algorithm.signals and not learning.asked_choices:
            raise ConfigError(
                f"{key}: {name} learns from the teacher's choices, "
                "for which it is not asked under this name",
                f'set learning.algorithm = "{DISTRIBUTIONS}" or "{SELF_DISTRIBUTIONS}"',
            )
    return algorithms
