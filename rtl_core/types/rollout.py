"""The noun *rollout*: one sampled answer, with all that training needs to know of it."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

Purpose = Literal["train", "evaluation", "warm_start", "measurement", "refinement", "set_aside"]
"""Why an answer was sampled: for a train step; for an evaluation; by the teacher, for the student to imitate at first; to find out how
hard the problems are before the run; as a later turn of a train step or an evaluation. `set_aside`: for a train step that was then sampled
anew, since its answers could not be trained on."""
PolicyName = Literal["student", "teacher"]
Ended = Literal["submitted", "no call", "cut", "turns", "tokens", "seconds"]
"""Why an episode ended: the model submitted, wrote a turn without a call, or was cut within a turn; or a bound was reached."""


class Rollout(BaseModel):
    """One sampled answer.

    `tokens_T` and `logprobs_T` are the completion's T tokens and the sampling policy's log-probabilities of them
    (natural logarithm, temperature 1), in the same order; `prompt_P` holds the P prompt tokens. Of an episode the completion is all that
    follows its first prompt, to the last token that the policy sampled; `own_T` tells its tokens from those that tools gave.
    """

    model_config = ConfigDict(frozen=True)
    run: str
    purpose: Purpose
    evaluation: str | None = None
    """Key of the evaluation that this rollout belongs to, in whatever turn; None outside of evaluations."""
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
    """The decoded completion without the token that ends the turn, and before it what the prompt's end had opened: the tag of a thought,
    or the header of a message. So it can be read without the prompt."""
    policy_step: int
    """How many train steps the sampling weights had seen (equal to `step` when on-policy)."""
    policy: PolicyName = "student"
    """Who wrote the answer."""
    turn: int = Field(default=1, ge=1)
    """1; 2 or 3 of purpose `refinement`, by which earlier versions followed up an answer that failed."""
    parent: str | None = None
    """Of `refinement`: key of the answer that it follows."""
    own_T: tuple[bool, ...] = ()
    """Which of the T tokens the policy sampled, of an episode; the others are the template's rendering of what tools gave, with the
    log-probability 0. Empty: all."""
    ended: Ended | None = None
    """Why an episode ended; None of a single-shot answer."""
    n_turns: int | None = None
    """Turns of the model in an episode."""

    @property
    def sampled_T(self) -> NDArray[np.bool_]:
        """True at the tokens that the policy sampled, shape (T,)."""
        return np.array(self.own_T, bool) if self.own_T else np.ones(len(self.tokens_T), bool)

    @property
    def n_own(self) -> int:
        """Tokens that the policy sampled."""
        return sum(self.own_T) if self.own_T else len(self.tokens_T)

    @property
    def key(self) -> str:
        """Primary key in the history, the same however often this rollout is produced. A name for people; no program reads it."""
        match self.purpose:
            case "train":
                place = f"step/{self.step:05d}"
            case "warm_start":
                place = f"eval/{self.run}/{self.policy}/warm start {self.step:05d}"
            case "measurement":
                place = f"eval/{self.run}/{self.policy}/measurement"
            case _:
                place = f"eval/{self.evaluation or f'step {self.step}'}"
        turn = f"/turn-{self.turn}" if self.turn > 1 else ""
        return f"{self.run}/{place}{turn}/{self.problem_id}/{self.sample}"
