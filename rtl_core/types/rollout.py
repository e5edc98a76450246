"""The noun *rollout*: one sampled answer with everything that training needs."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

Purpose = Literal["train", "evaluation", "warm_start", "measurement", "set_aside"]
"""Why an answer was sampled. `warm_start`: by the teacher or an endpoint, for the student to imitate. `measurement`: to
measure the difficulty of problems before the run. `set_aside`: for a train step that could not be trained on and
was sampled again."""
PolicyName = Literal["student", "teacher", "endpoint"]
"""Who wrote an answer; `endpoint`: `learning.warm_start_model`."""
Kind = Literal["single attempt", "tools without harness", "feedback of the harness"]
"""What a model had for one answer: one turn; turns with tools, which never run the harness; or also words
on why an earlier answer failed the harness."""
Ended = Literal["submitted", "no call", "cut", "refused", "turns", "tokens", "seconds"]
"""Why an episode ended: the model submitted, wrote a turn without a call, was truncated within a turn, or its
endpoint refused the conversation; or a limit was reached."""
StopReason = Literal["stop", "length", "refused"]
"""Why an answer ended; `refused`: an endpoint refused to answer."""


class Rollout(BaseModel):
    """One sampled answer.

    `tokens_T` and `logprobs_T` are the completion's T tokens and the sampling policy's log-probabilities of them
    (natural logarithm, temperature 1), in the same order; `prompt_P` holds the P prompt tokens. The
    completion of an episode is everything from its first prompt to the last token that the policy sampled;
    `own_T` separates the policy's tokens from those of tools.
    """

    model_config = ConfigDict(frozen=True)
    run: str
    purpose: Purpose
    evaluation: str | None = None
    """Key of the evaluation that this rollout belongs to; None outside evaluations."""
    epoch: int
    step: int
    problem_id: str
    sample: int
    """Index within the group, from 0."""
    prompt_P: tuple[int, ...]
    tokens_T: tuple[int, ...]
    logprobs_T: tuple[float, ...]
    stop_reason: StopReason
    text: str
    """The decoded completion without its stop token. It begins with what the end of the prompt opened (the
    tag of a thought or the header of a message), so that it can be parsed without the prompt."""
    policy_step: int
    """Number of train steps of the sampling weights (equal to `step` when on-policy)."""
    policy: PolicyName = "student"
    """Model that wrote the answer."""
    own_T: tuple[bool, ...] = ()
    """In an episode, which of the T tokens the policy sampled. The others are rendered tool results with
    log-probability 0. Empty: all."""
    ended: Ended | None = None
    """Why the episode ended; None for a single-shot answer."""
    n_turns: int | None = None
    """Number of model turns in an episode."""
    n_cached: int | None = None
    """Tokens of all prompts of the answer that the service read from its cache, as it bills them; None: unknown."""
    counted: tuple[int, int] | None = None
    """Of an answer of `endpoint`: tokens read and written, as it counts them. The history has the two numbers
    in place of tokens."""

    @property
    def sampled_T(self) -> NDArray[np.bool_]:
        """True at the tokens that the policy sampled, shape (T,)."""
        return np.array(self.own_T, bool) if self.own_T else np.ones(len(self.tokens_T), bool)

    @property
    def n_own(self) -> int:
        """Number of tokens that the policy sampled."""
        return sum(self.own_T) if self.own_T else len(self.tokens_T)

    @property
    def key(self) -> str:
        """Primary key in the history, the same each time this rollout is produced. For people; no program parses it."""
        match self.purpose:
            case "train":
                place = f"step/{self.step:05d}"
            case "warm_start":
                place = f"eval/{self.run}/{self.policy}/warm start {self.step:05d}"
            case "measurement":
                place = f"eval/{self.run}/{self.policy}/measurement"
            case _:
                place = f"eval/{self.evaluation or f'step {self.step}'}"
        return f"{self.run}/{place}/{self.problem_id}/{self.sample}"
