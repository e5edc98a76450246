"""Distillation from the student itself, which sees a hint when it scores an answer."""

from __future__ import annotations

from rtl_core.algorithms.base import ALGORITHMS
from rtl_core.algorithms.grpo import Grpo
from rtl_core.config.learning import SELF_DISTILLATION
from rtl_core.history.records import StoredRollout


@ALGORITHMS.register(SELF_DISTILLATION)
class SelfDistillation(Grpo):
    """Group-relative policy optimisation whose teacher is the student with a hint in its prompt; no other
    model is needed.

    Needs: answers sampled by the student, their rewards and, where λ > 0, the log-probabilities of their
    tokens under the student with the weights of `learning.self_weights`, after a prompt with the hint of
    `learning.self_hint` (rollouts/scoring.py): `golden`, the problem's known-good answer; `verdict`, a
    passing answer of the same group, or else the grader's feedback on this answer.
    Credit: as in `grpo`.
    Loss inputs: as in `grpo`, `a_t = A − λ Σ_{u ≥ t} γ^(u−t) (s_u − q_u)` with q from the hinted prompt. An
    answer without a hint (no golden answer; it passed, and no other one did) has only its reward: λ = 0.

    The hint is never in a prompt that is sampled from or trained under. With `reward_weight` = 0 and the
    golden answer it is on-policy self-distillation (OPSD: Zhao et al. 2026, arXiv:2601.18734); with the
    verdict the self-teacher of SDPO (Hübotter et al. 2026, arXiv:2601.20802), with the sampled tokens'
    log-probabilities instead of the whole distribution. Its benefit is limited by how much better the
    student is with the hint.
    """

    def kl_weight_of(self, answer: StoredRollout, kl_weight: float) -> float:
        return 0.0 if answer.teacher is None else super().kl_weight_of(answer, kl_weight)
