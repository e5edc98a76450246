"""Whether a folder of weights computes what was served: log-probabilities of recorded answers, by plain transformers.

The history has the tokens of every answer and the log-probabilities that the sampler reported. Answers that these very weights sampled are
scored again by the folder. Two programs add up in different orders, so the figures differ a little even where the weights are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtl_core.config import RunConfig
from rtl_core.errors import PolicyError
from rtl_core.history.store import History

COMPARED = 8
"""How many answers are compared."""
LONGEST = 4096
"""Tokens of prompt and answer above which another answer is preferred."""
MOST_EXACT = 1e-4
"""Nats by which one token may differ where service and folder both compute in float32."""
MOST_ROUNDED = 0.05
"""Nats by which tokens may differ on average where one of them rounds to 16 bits or is a service of others."""


@dataclass(frozen=True)
class Served:
    """One answer as it was served: P prompt tokens, T tokens, the T log-probabilities that the service gave them, and which of them were sampled
    (None: all)."""

    rollout: str
    prompt_P: Sequence[int]
    tokens_T: Sequence[int]
    logprobs_T: NDArray[np.float32]
    own_T: Sequence[bool] | None = None


@dataclass(frozen=True)
class Difference:
    """Absolute differences of log-probabilities, in nats, over the tokens of some answers."""

    largest: float
    mean: float
    tokens: int
    answers: int

    def __str__(self) -> str:
        return f"{self.largest:.1e} nats at most, {self.mean:.1e} on average over {self.tokens} tokens of {self.answers} answers"


def sampled_by(history: History, config: RunConfig, steps: int, *, any_temperature: bool) -> list[Served]:
    """A few answers, always the same, that the weights after `steps` train steps sampled.

    Args:
        any_temperature: take those of other temperatures than 1, too: not every service reports the model's own log-probabilities then.
    """
    own = {
        "run": config.run.name,
        "steps": steps,
        "any": any_temperature,
        "training": config.sampling.temperature,
        "evaluation": config.evaluation.temperature or config.sampling.temperature,
    }
    where = """r.policy = 'student' AND r.policy_step = $steps AND ($any OR 1 =
      coalesce(e.temperature, CASE WHEN r.evaluation IS NULL THEN $training ELSE $evaluation END))"""
    return _read(history, where, own)


def any_answers(history: History, config: RunConfig) -> list[Served]:
    """Answers of the run, by any weights; their log-probabilities must be computed anew."""
    return _read(history, "true", {"run": config.run.name})


def _read(history: History, where: str, parameters: dict[str, Any]) -> list[Served]:
    rows = history.query(
        f"""SELECT r.rollout, p.tokens_P, t.tokens_T, t.logprobs_T, t.own_T FROM rollouts r
        JOIN tokens t USING (rollout) JOIN prompts p USING (prompt) LEFT JOIN evaluations e ON e.evaluation = r.evaluation
        WHERE r.run = $run AND r.n_tokens > 0 AND {where}
        ORDER BY r.n_prompt + r.n_tokens > {LONGEST}, hash(r.rollout) LIMIT {COMPARED}""",
        parameters,
    ).to_pylist()
    return [
        Served(row["rollout"], row["tokens_P"], row["tokens_T"], np.array(row["logprobs_T"], np.float32), row["own_T"])
        for row in rows
    ]


def difference(model: Any, served: Sequence[Served]) -> Difference:
    """How far a model of transformers is from what was served."""
    import torch

    apart = []
    for one in served:
        tokens = torch.tensor([[*one.prompt_P, *one.tokens_T]])
        with torch.inference_mode():
            logits = model(input_ids=tokens, use_cache=False).logits[0, len(one.prompt_P) - 1 : -1].float()
            own_T = logits.log_softmax(-1).gather(1, tokens[0, len(one.prompt_P) :, None])[:, 0]
        apart_T = np.abs(own_T.numpy() - one.logprobs_T)
        apart.append(apart_T if one.own_T is None else apart_T[np.array(one.own_T)])
    all_T = np.concatenate(apart)
    return Difference(float(all_T.max()), float(all_T.mean()), len(all_T), len(served))


def require_same(found: Difference, *, exact: bool) -> None:
    """PolicyError where the weights are not those that were served. `exact`: service and model both compute in float32."""
    value, most = (found.largest, MOST_EXACT) if exact else (found.mean, MOST_ROUNDED)
    if not value <= most:  # NaN is refused, too
        kind = "of one token" if exact else "on average"
        raise PolicyError(
            f"the merged model is not the one that was served: log-probabilities differ by {found}; {most:g} {kind} is what"
            " arithmetic explains",
            "nothing was written; check that the base is the very model that was trained (revision, tokenizer), then its dtype",
        )
