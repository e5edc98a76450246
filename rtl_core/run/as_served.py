"""Check that a folder of weights is the model that was served, by log-probabilities of recorded answers in plain transformers.

The history has the tokens of every answer and the log-probabilities that the sampler reported. Answers that these weights sampled are
scored again by the folder. Summation order differs between programs, so the figures differ slightly even for equal weights.
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
"""Number of answers that are compared."""
LONGEST = 4096
"""Tokens of prompt and answer above which shorter answers are preferred."""
MOST_EXACT = 1e-4
"""Nats by which one token may differ if service and folder both compute in float32."""
MOST_ROUNDED = 0.05
"""Nats by which tokens may differ on average if one of them rounds to 16 bits or is an external service."""


@dataclass(frozen=True)
class Served:
    """One answer as served: P prompt tokens, T tokens, the service's T log-probabilities, and which tokens were sampled (None: all)."""

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
    """Return a few answers, always the same, that the weights after `steps` train steps sampled.

    Args:
        any_temperature: also use temperatures other than 1, at which some services do not report the model's own log-probabilities.
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
    """Return answers of the run from any weights; their log-probabilities must be recomputed."""
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
    """Return how much a transformers model differs from what was served."""
    import torch

    differences = []
    for answer in served:
        tokens, n_prompt = torch.tensor([[*answer.prompt_P, *answer.tokens_T]]), len(answer.prompt_P)
        with torch.inference_mode():
            logits = model(input_ids=tokens, use_cache=False).logits[0, n_prompt - 1 : -1].float()
            logprobs_T = logits.log_softmax(-1).gather(1, tokens[0, n_prompt:, None])[:, 0]
        difference_T = np.abs(logprobs_T.numpy() - answer.logprobs_T)
        differences.append(difference_T if answer.own_T is None else difference_T[np.array(answer.own_T)])
    all_T = np.concatenate(differences)
    return Difference(float(all_T.max()), float(all_T.mean()), len(all_T), len(served))


def require_same(found: Difference, *, exact: bool) -> None:
    """Raise PolicyError if the weights are not those that were served. `exact`: service and model both compute in float32."""
    value, most = (found.largest, MOST_EXACT) if exact else (found.mean, MOST_ROUNDED)
    if not value <= most:  # also for NaN
        kind = "for one token" if exact else "on average"
        raise PolicyError(
            f"the merged model is not the one that was served: log-probabilities differ by {found}; rounding explains up to"
            f" {most:g} {kind}",
            "nothing was written; check that the base is exactly the model that was trained (revision, tokenizer), then its dtype",
        )
