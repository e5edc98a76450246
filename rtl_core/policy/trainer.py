"""The train step, and where weights go.

Alignment: a datum's input is the whole sequence without its last token and its target the sequence without its first, so
position t predicts token t + 1. Prompt positions carry advantage 0 and so no gradient.

Exactly once: an optimizer step cannot be undone, so a step counts only when the state saved after it is recorded in the
history. A step that was interrupted is repeated from the state recorded before it; what the interrupted attempt did to the
weights is left behind with its training client.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tinker import types

from rtl_core.config import RunConfig


@dataclass(frozen=True)
class Datum:
    """One sequence to train on, and what the loss reads beside the tokens: name -> [T] of the completion. The prompt is not trained on."""

    prompt_P: Sequence[int]
    tokens_T: Sequence[int]
    inputs: Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True)
class Checkpoint:
    """Where the weights after a step are: the full state to resume from, and the frozen copy to sample from."""

    state_path: str
    sampler_path: str


@dataclass(frozen=True)
class Trained:
    """What a train step sent to the service to train on: how many datums, and their tokens, P + T − 1 each, which is what a service
    charges for. A datum that is sent in two passes counts twice."""

    examples: int = 0
    tokens: int = 0

    @classmethod
    def on(cls, datums: Sequence[types.Datum]) -> Trained:
        """Of one pass over `datums`."""
        return cls(len(datums), sum(datum.model_input.length for datum in datums))

    def __add__(self, other: Trained) -> Trained:
        return Trained(self.examples + other.examples, self.tokens + other.tokens)


def to_datum(datum: Datum) -> types.Datum:
    """A datum as the SDK takes it; all arrays have length P + T − 1, the inputs with 0, and so no gradient, on the prompt."""
    sequence = [*datum.prompt_P, *datum.tokens_T]
    padding = np.zeros(len(datum.prompt_P) - 1, np.float32)
    inputs = {name: np.concatenate([padding, values_T]) for name, values_T in datum.inputs.items()}
    return types.Datum(
        model_input=types.ModelInput.from_ints(sequence[:-1]),
        loss_fn_inputs={
            "target_tokens": types.TensorData.from_numpy(np.array(sequence[1:], np.int64)),
            **{name: types.TensorData.from_numpy(values) for name, values in inputs.items()},
        },
    )


def loss_config(config: RunConfig) -> dict[str, float] | None:
    """The loss's own settings, under the names that the Tinker API gives them; None for a loss without any."""
    if config.learning.loss == "importance_sampling":
        return None
    return {"clip_low_threshold": config.learning.clip_low, "clip_high_threshold": config.learning.clip_high}


async def open_training_client(service: Any, config: RunConfig, state_path: str | None) -> Any:
    """The student's training client: a fresh adapter, or the recorded state with its optimizer."""
    if state_path is not None:
        return await service.create_training_client_from_state_with_optimizer(state_path)
    return await service.create_lora_training_client(
        base_model=config.tinker.student, rank=config.tinker.lora_rank, seed=config.run.seed
    )


async def train_step(
    client: Any, datums: Sequence[Datum], config: RunConfig, learning_rate: float
) -> tuple[dict[str, float], Trained]:
    """One forward-backward pass over all datums and one optimizer step at `learning_rate`; neither without data.

    Returns:
        Metrics and what was sent. Metrics: `optim/kl_sample_train_v1` (mean of sampler − trainer log-probability over action tokens),
        `optim/kl_sample_train_v2` (half the mean of its square), `optim/entropy` (mean of − sampler log-probability), `optim/lr`
        and what the service reports, under `service/`.
    """
    if not datums:
        return {}, Trained()
    sent = [to_datum(datum) for datum in datums]
    # Both are submitted before either is awaited: the service then runs them in one cycle.
    backward = client.forward_backward(sent, config.learning.loss, loss_config(config))
    optim = client.optim_step(_adam(config, learning_rate))
    output, optim_output = await backward, await optim
    sampler = np.concatenate([datum.inputs["logprobs"] for datum in datums]).astype(np.float64)
    trainer = np.concatenate(
        [
            np.asarray(record["logprobs"].to_numpy(), np.float64)[-len(datum.tokens_T) :]
            for record, datum in zip(output.loss_fn_outputs, datums, strict=True)
        ]
    )
    metrics = {
        "optim/kl_sample_train_v1": float(np.mean(sampler - trainer)),
        "optim/kl_sample_train_v2": float(np.mean((sampler - trainer) ** 2) / 2),
        "optim/entropy": float(np.mean(-sampler)),
        "optim/lr": learning_rate,
        **_service_metrics(output, optim_output),
    }
    return metrics, Trained.on(sent)


async def supervised_step(
    client: Any, datums: Sequence[Datum], config: RunConfig, learning_rate: float
) -> tuple[dict[str, float], Trained]:
    """One cross-entropy pass over all datums and one optimizer step; neither without data.

    Returns:
        Metrics and what was sent. Metrics: `warm_start/nll` (mean of − log-probability of the answers' tokens before the step,
        nats), `optim/lr` and the service's.
    """
    if not datums:
        return {}, Trained()
    sent = [to_datum(datum) for datum in datums]
    backward = client.forward_backward(sent, "cross_entropy")
    optim = client.optim_step(_adam(config, learning_rate))
    output, optim_output = await backward, await optim
    logprobs = [
        np.asarray(record["logprobs"].to_numpy(), np.float64)[-len(datum.tokens_T) :]
        for record, datum in zip(output.loss_fn_outputs, datums, strict=True)
    ]
    metrics = {
        "warm_start/nll": float(-np.concatenate(logprobs).mean()),
        "optim/lr": learning_rate,
        **_service_metrics(output, optim_output),
    }
    return metrics, Trained.on(sent)


def _adam(config: RunConfig, learning_rate: float) -> types.AdamParams:
    learning = config.learning
    return types.AdamParams(
        learning_rate=learning_rate,
        beta1=learning.beta1,
        beta2=learning.beta2,
        eps=learning.eps,
        grad_clip_norm=learning.grad_clip_norm,
    )


def _service_metrics(output: Any, optim_output: Any) -> dict[str, float]:
    """What the service reports of both passes."""
    reported = {**output.metrics, **(optim_output.metrics or {})}
    return {f"service/{name}": float(value) for name, value in reported.items()}


async def save_checkpoint(client: Any, name: str, ttl_s: int | None = None) -> Checkpoint:
    """Save state and sampler weights under `name`; a half-made checkpoint of the same name is replaced.

    The service deletes both `ttl_s` seconds later; None means never.
    """
    state = client.save_state(name, ttl_seconds=ttl_s, overwrite=True)
    sampler = client.save_weights_for_sampler(name, ttl_seconds=ttl_s)
    return Checkpoint(state_path=(await state).path, sampler_path=(await sampler).path)
