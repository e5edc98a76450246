"""The noun *rollout*: one sampled answer, with all that training needs to know of it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

Purpose = Literal["train", "evaluation", "warm_start", "measurement", "refinement"]
"""`refinement`: a later turn of a step or evaluation (pipeline/refining.py); `warm_start`: the teacher's answers that the student imitates at first; `measurement`: how hard problems are before the run."""


class Rollout(BaseModel):
    """One sampled answer.

    `tokens_T` and `logprobs_T` are the completion's T tokens and the sampling policy's log-probabilities of them
    (natural logarithm, temperature 1), in the same order; `prompt_P` holds the P prompt tokens.
    """

    model_config = ConfigDict(frozen=True)
    run: str
    purpose: Purpose
    evaluation: str | None = None
    """Key of the evaluation, warm start or measurement that this rollout belongs to; None for training."""
    epoch: int
    step: int
    problem_id: str
    sample: int
    """Index within the group, from 0."""
    prompt_P: tuple[int, ...]
    tokens_T: tuple[int, ...]
    logprobs_T: tuple[float, ...]
    stop_reason: Literal["stop", "length"]
    text: str
    """The decoded completion, without the end-of-turn token."""
    policy_step: int
    """How many train steps the sampling weights had seen (equal to `step` when on-policy)."""

    @property
    def key(self) -> str:
        """Primary key in the history, the same however often this rollout is produced."""
        place = f"step/{self.step:05d}" if self.evaluation is None else f"eval/{self.evaluation}"
        return f"{self.run}/{place}/{self.problem_id}/{self.sample}"
