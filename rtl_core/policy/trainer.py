"""The train step, and where weights go.

Alignment: a datum's input is the whole sequence without its last token and its target the sequence without its first, so
position t predicts token t + 1. Prompt positions carry advantage 0 and so no gradient.

Exactly once: an optimizer step cannot be undone, so a step counts only when the state saved after it is recorded in the
history. A step that was interrupted is repeated from the state recorded before it; what the interrupted attempt did to the
weights is left behind with its training client.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tinker import types

from rtl_core.config import RunConfig


@dataclass(frozen=True)
class TrainExample:
    """One rollout ready to train on: P prompt tokens, T completion tokens with the sampler's log-probabilities and advantages."""

    prompt_P: Sequence[int]
    tokens_T: Sequence[int]
    logprobs_T: NDArray[np.float32]
    advantages_T: NDArray[np.float32]


@dataclass(frozen=True)
class Checkpoint:
    """Where the weights after a step are: the full state to resume from, and the frozen copy to sample from."""

    state_path: str
    sampler_path: str


def to_datum(example: TrainExample) -> types.Datum:
    """One rollout as the SDK takes it; all arrays have length P + T − 1."""
    sequence = [*example.prompt_P, *example.tokens_T]
    padding = np.zeros(len(example.prompt_P) - 1, np.float32)
    return types.Datum(
        model_input=types.ModelInput.from_ints(sequence[:-1]),
        loss_fn_inputs={
            "target_tokens": types.TensorData.from_numpy(np.array(sequence[1:], np.int64)),
            "logprobs": types.TensorData.from_numpy(np.concatenate([padding, example.logprobs_T])),
            "advantages": types.TensorData.from_numpy(np.concatenate([padding, example.advantages_T])),
        },
    )


async def open_training_client(service: Any, config: RunConfig, state_path: str | None) -> Any:
    """The student's training client: a fresh adapter, or the recorded state with its optimizer."""
    if state_path is not None:
        return await service.create_training_client_from_state_with_optimizer(state_path)
    return await service.create_lora_training_client(
        base_model=config.tinker.student, rank=config.tinker.lora_rank, seed=config.run.seed
    )


async def train_step(
    client: Any, examples: Sequence[TrainExample], config: RunConfig, learning_rate: float
) -> dict[str, float]:
    """One forward-backward pass over all examples and one optimizer step at `learning_rate`.

    Returns:
        Metrics: `optim/kl_sample_train_v1` (mean of sampler − trainer log-probability over action tokens),
        `optim/entropy` (mean of − sampler log-probability), `optim/lr` and what the service reports, under `service/`.
    """
    learning = config.learning
    # Both are submitted before either is awaited: the service then runs them in one cycle.
    backward = client.forward_backward([to_datum(example) for example in examples], learning.loss)
    optim = client.optim_step(
        types.AdamParams(
            learning_rate=learning_rate,
            beta1=learning.beta1,
            beta2=learning.beta2,
            eps=learning.eps,
            grad_clip_norm=learning.grad_clip_norm,
        )
    )
    output, optim_output = await backward, await optim
    sampler = np.concatenate([example.logprobs_T for example in examples]).astype(np.float64)
    trainer = np.concatenate(
        [
            np.asarray(record["logprobs"].to_numpy(), np.float64)[-len(example.tokens_T) :]
            for record, example in zip(output.loss_fn_outputs, examples, strict=True)
        ]
    )
    service_metrics = {**output.metrics, **(optim_output.metrics or {})}
    return {
        "optim/kl_sample_train_v1": float(np.mean(sampler - trainer)),
        "optim/entropy": float(np.mean(-sampler)),
        "optim/lr": learning_rate,
        **{f"service/{name}": float(value) for name, value in service_metrics.items()},
    }


async def save_checkpoint(client: Any, name: str, ttl_s: int | None = None) -> Checkpoint:
    """Save state and sampler weights under `name`; a half-made checkpoint of the same name is replaced.

    The service deletes both `ttl_s` seconds later; None means never.
    """
    state = client.save_state(name, ttl_seconds=ttl_s, overwrite=True)
    sampler = client.save_weights_for_sampler(name, ttl_seconds=ttl_s)
    return Checkpoint(state_path=(await state).path, sampler_path=(await sampler).path)
