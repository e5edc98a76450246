"""Group-relative policy optimisation with a teacher; on-policy distillation is a special case."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from rtl_core.algorithms.base import ALGORITHMS, Algorithm, Group, Inputs, credit_of
from rtl_core.history.records import StoredRollout
from rtl_core.learning.advantage import Scale, token_advantages
from rtl_core.learning.credit import Components, GroupCredit, Rules, credit
from rtl_core.learning.kl import unsure
from rtl_core.types.numbers import Floats, Floats32


@ALGORITHMS.register("grpo")
class Grpo(Algorithm):
    """The student's own answers, each compared with its group, with the reverse KL to the teacher at every token.

    Needs: answers sampled by the student, their rewards and, where λ > 0, the teacher's log-probabilities
        of their tokens.
    Credit: `A_i = ρ (R_i − mean(R))`, R with the penalty of a truncated answer (learning/credit.py).
    Loss inputs: the sampler's log-probabilities, and `a_t = A − λ Σ_{u ≥ t} γ^(u−t) (s_u − q_u)`
        (learning/advantage.py). λ is 0
    where the teacher is not heard: with `kl_on` = `failed` in rewarded passes, and by `kl_unsure_below` and
        `kl_after_error`.

    Episodes: an episode is one answer with the tokens of all turns, each in its context. A is the same at
    each token that the student sampled. At tool output a_t = 0 and s = q = 0, so that reward, KL and
    metrics ignore it.

    With λ = 0 it is GRPO without its length and std terms, as in "Dr. GRPO"; with ρ = `reward_weight` = 0
    on-policy distillation; with `baseline = "leave_one_out"` RLOO. Sources: Shao et al. 2024
    (arXiv:2402.03300); Liu et al. 2025 (arXiv:2503.20783); Ahmadian et al. 2024 (arXiv:2402.14740);
    on-policy distillation as in the public tinker-cookbook.
    """

    scale: ClassVar[Scale | None] = None
    """Divisor of a group's advantages; None: as `learning.normalise_std` says."""

    def credit(self, group: Group) -> GroupCredit:
        return self.credit_by(group, None)

    def credit_by(self, group: Group, components: Components | None) -> GroupCredit:
        """Credit by the settings of the run, from the rewards or from their components."""
        learning = self.config.learning
        of_run: Scale = "std" if learning.normalise_std else "none"
        rules = Rules(
            limit=self.config.trained_limit,
            truncated=learning.truncated,
            penalty=learning.overlong_penalty,
            buffer=learning.overlong_buffer,
            doubtful=learning.doubtful,
            baseline=learning.baseline,
            scale=self.scale or of_run,
            reward_weight=learning.reward_weight,
        )
        answers = group.earned_G, group.lengths_G, group.cut_G
        return credit(*answers, rules, group.doubtful_G, components)

    def loss_inputs(self, answer: StoredRollout, kl_weight: float) -> Inputs:
        return {
            "logprobs": np.array(answer.rollout.logprobs_T, np.float32),
            "advantages": self.advantages_T(
                answer, credit_of(answer).advantage, self.kl_weight_of(answer, kl_weight)
            ),
        }

    def kl_weight_of(self, answer: StoredRollout, kl_weight: float) -> float:
        """λ of one answer: 0 if `learning.kl_on` gives it only its reward."""
        learning = self.config.learning
        unpaid = learning.doubtful == "zero" and answer.audit == "different"
        return 0.0 if answer.passed and not unpaid and learning.kl_on == "failed" else kl_weight

    def advantages_T(
        self, answer: StoredRollout, advantage: float, kl_weight: float
    ) -> Floats32:
        """Advantage of each of the answer's T tokens, from the scalar `advantage` and the KL."""
        learning = self.config.learning
        return token_advantages(
            advantage,
            np.array(answer.rollout.logprobs_T),
            None if answer.teacher is None else np.asarray(answer.teacher.logprobs_T),
            kl_weight=kl_weight,
            kl_discount=learning.kl_discount,
            kl_clamp=learning.kl_clamp,
            heard_T=self.heard_T(answer),
        )

    def heard_T(self, answer: StoredRollout) -> Floats:
        """1 at each token where the teacher is heard, 0 elsewhere (learning/kl.py)."""
        heard_T = unsure(
            np.array(answer.rollout.logprobs_T), self.config.learning.kl_unsure_below
        )
        heard_T[: answer.heard_from] = 0.0
        return heard_T
