"""Group-relative policy optimisation on the terms of the reward, each normalised by itself."""

from __future__ import annotations

from typing import ClassVar

from rtl_core.algorithms.base import ALGORITHMS, Group
from rtl_core.algorithms.grpo import Grpo
from rtl_core.config.learning import GDPO
from rtl_core.learning.credit import GroupCredit


@ALGORITHMS.register(GDPO)
class Gdpo(Grpo):
    """Group reward-decoupled normalisation: answers with equal rewards that were earned at different stages
    differ.

    Needs: answers sampled by the student, the terms of their rewards (`reward.weights`) and, where λ > 0,
        the teacher's log-probabilities of their tokens.
    Credit: `A_i = ρ Σ_c w_c (v_ic − mean(v_c)) / std(v_c)` over the terms c with values v and weights w, mean
        and standard deviation over the group; a term that is equal in the whole group adds 0. The penalty of
        a truncated answer is another term, with the weight `overlong_penalty`.
    Loss inputs: as in `grpo`, with A divided by its standard deviation over the answers of the step, so that its size
        does not depend on the number of terms. Each group's mean is 0, so none is subtracted. A step in
        which few groups differ is scaled up.

    A rare success counts by its rarity at each stage, and a stage whose values differ in a single answer counts
    with its whole weight. With one term it is `grpo` with `normalise_std` and the division by the step's
    standard deviation. The recorded advantage is A before this division.

    Source: Liu et al. 2026, "GDPO" (arXiv:2601.05242): normalisation of each reward in its group, the weighted
        sum, and the normalisation of this sum over the batch.
    """

    normalises_batch: ClassVar[bool] = True

    def credit(self, group: Group) -> GroupCredit:
        return self.credit_by(group, group.components)
