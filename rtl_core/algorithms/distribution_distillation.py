"""Distillation on the teacher's distribution at each position of the student's own answer, instead of its
score of the sampled token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from rtl_core.algorithms.base import ALGORITHMS, Inputs, credit_of
from rtl_core.algorithms.grpo import Grpo
from rtl_core.algorithms.self_distillation import SelfDistillation
from rtl_core.config.learning import DISTRIBUTIONS, SELF_DISTRIBUTIONS
from rtl_core.history.records import StoredRollout
from rtl_core.learning.distributions import Choices, divergence
from rtl_core.learning.kl import FloatArray
from rtl_core.types.numbers import Floats32


@ALGORITHMS.register(DISTRIBUTIONS)
class DistributionDistillation(Grpo):
    """Group-relative policy optimisation, plus the divergence from the teacher on k tokens at every position of the
    answer: those most likely to the teacher or to the student (`learning.choices_of`).

    Needs: answers sampled by the student, their rewards and, where λ > 0, the teacher's log-probabilities of the k
        tokens at each position.
    Credit: as in `grpo`.
    Loss: `Σ_t (−r_t A + λ_t D_t)`, r_t = π(t) / π_sampler(t), D_t by `learning.divergence` and `tail`
    (learning/distributions.py), λ_t = λ where the teacher is heard, else 0. It is sent as a cross entropy
    with 1 + k targets per position: the sampled token has the weight r_t A and the k tokens −λ_t
    ∂D_t/∂log π, which gives the gradient of that loss at the current weights. These need the trainer's
    log-probabilities of all targets, an additional forward pass (`learning.reads_trainer`), as in the SDK's
    `forward_backward_custom`. On-policy two cases need none, with r_t = 1: the student's choices, whose
    log-probabilities come with the sample, and forward KL, renormalised.

    The reverse KL's gradient is the expectation, over the sampled token, of the gradient that `grpo` uses,
    so λ has the same meaning. With γ > 0 `grpo` also charges a token for later ones; here each position has
    only its own divergence.

    Sources: Agarwal et al. 2024, "On-Policy Distillation of Language Models" (arXiv:2306.13649); top-k
    cross entropy as in the public tinker-cookbook.
    """

    signals: ClassVar[tuple[str, ...]] = ("advantages", "kl_weights")

    def loss_inputs(self, answer: StoredRollout, kl_weight: float) -> Inputs:
        """Inputs of `weights`, or those of `grpo` if λ = 0. Without the teacher's choices λ_t is 0."""
        if not kl_weight:
            return super().loss_inputs(answer, kl_weight)
        n_tokens, k = len(answer.rollout.tokens_T), self.config.learning.teacher_choices
        weight, own = self.kl_weight_of(answer, kl_weight), answer.choices
        choices = None if answer.teacher is None else answer.teacher.choices
        if choices is None:
            shape, weight = (n_tokens, k), 0.0
            choices = Choices(np.zeros(shape, np.int64), np.zeros(shape, np.float32))
        of_student = {} if own is None else {"student_logprobs": own.logprobs_TK}
        return {
            **of_student,
            "logprobs": np.array(answer.rollout.logprobs_T, np.float32),
            "advantages": np.full(n_tokens, credit_of(answer).advantage, np.float32),
            "kl_weights": (weight * self.heard_T(answer)).astype(np.float32),
            "teacher_tokens": choices.tokens_TK,
            "teacher_logprobs": choices.logprobs_TK,
        }

    def weights(
        self, inputs: Mapping[str, NDArray[Any]], trainer_TK: FloatArray | None
    ) -> Floats32:
        """Weights (T, 1 + K) of the cross entropy.

        Args:
            inputs: result of `loss_inputs` for one answer.
            trainer_TK: the trainer's log-probabilities of the sampled token and of the K others, (T, 1 + K); None if
                `learning.reads_trainer` is false.
        """
        learning = self.config.learning
        own_T = inputs["advantages"].astype(np.float64)
        # Without either the weights do not depend on them, or λ_t is 0.
        student_TK = inputs.get("student_logprobs", inputs["teacher_logprobs"])
        if trainer_TK is not None:
            own_T = own_T * np.exp(trainer_TK[:, 0] - inputs["logprobs"])
            student_TK = trainer_TK[:, 1:]
        _, pull_TK = divergence(
            student_TK,
            inputs["teacher_logprobs"],
            learning.divergence,
            learning.tail,
            beta=learning.jensen_shannon_beta,
            clamp=learning.kl_clamp,
        )
        return np.column_stack([own_T, -inputs["kl_weights"][:, None] * pull_TK]).astype(
            np.float32
        )


@ALGORITHMS.register(SELF_DISTRIBUTIONS)
class SelfDistributionDistillation(DistributionDistillation, SelfDistillation):
    """`distribution_distillation` whose teacher is the student with a hint in its prompt, as in `self_distillation`.

    Source: SDFT (Shenfeld et al. 2026, arXiv:2601.19897), here on the student's own answers and with a reward.
    """
