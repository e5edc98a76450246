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
from rtl_core.learning.credit import Credit, GroupCredit
from rtl_grader.registry import Registry

Inputs = dict[str, NDArray[Any]]
"""Name of a loss input -> values at the T completion tokens, shape (T,), or (T, K) for several targets."""


@dataclass(frozen=True)
class Group:
    """The G answers to one problem of a step: graded and, if the step uses the KL, scored by the teacher."""

    answers: Sequence[StoredRollout]

    @property
    def earned_G(self) -> NDArray[np.float64]:
        """Reward of each answer. Raises RuntimeError if one has no verdict."""
        if missing := [stored.rollout.key for stored in self.answers if stored.reward is None]:
            raise RuntimeError(f"{missing[0]} has no verdict; it must not be trained on")
        return np.array(
            [stored.reward.total for stored in self.answers if stored.reward is not None],
            np.float64,
        )

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


def chosen(config: RunConfig) -> type[Algorithm]:
    """Algorithm class of a run. Raises ConfigError if there is none of that name, or if `learning.loss`
    cannot use its inputs."""
    algorithm = ALGORITHMS.find(config.learning.algorithm)
    if "advantages" not in algorithm.signals:
        raise ConfigError(
            f"learning.algorithm: {config.learning.algorithm} has no advantages, which learning.loss reads",
            "supervised steps at the beginning of a run are learning.warm_start_steps",
        )
    if "kl_weights" in algorithm.signals and not config.learning.asked_choices:
        raise ConfigError(
            f"learning.algorithm: {config.learning.algorithm} learns from the teacher's choices, "
            "for which it is not asked under this name",
            f'set learning.algorithm = "{DISTRIBUTIONS}" or "{SELF_DISTRIBUTIONS}"',
        )
    return algorithm
