"""The train step through a Tinker training client.

Alignment: a datum's input is the whole sequence without its last token and its target the sequence without its first, so
position t predicts token t + 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

import numpy as np
import tinker
from tinker import types

from rtl_core.backend.base import Adam, Checkpoint, Datum, StepResult, checked_logprobs, checked_metrics
from rtl_core.backend.tinker.faults import client_may_be_lost
from rtl_core.config import RunConfig


class TinkerTrainer:
    """See `Trainer`."""

    def __init__(
        self,
        client: tinker.TrainingClient,
        guarded: Callable[[], AbstractContextManager[None]] = client_may_be_lost,
    ) -> None:
        """`guarded`: stands around all requests and translates SDK errors into ours."""
        self._client = client
        self._guarded = guarded

    async def step(self, datums: Sequence[Datum], loss: str, parameters: Mapping[str, float], adam: Adam) -> StepResult:
        sent = [to_datum(datum) for datum in datums]
        with self._guarded():
            # Both are submitted before either is awaited: the service then runs them in one cycle.
            backward = self._client.forward_backward(sent, loss, dict(parameters) or None)  # type: ignore[arg-type]
            optim = self._client.optim_step(types.AdamParams(**vars(adam)))
            output, optim_output = await backward, await optim
            measured = {**output.metrics, **(optim_output.metrics or {})}
            return StepResult(
                examples=len(sent),
                tokens=sum(datum.model_input.length for datum in sent),
                logprobs=[
                    checked_logprobs(
                        record["logprobs"].to_numpy()[-len(datum.tokens_T) :].tolist(),
                        len(datum.tokens_T),
                        "a trained answer",
                    )
                    for record, datum in zip(output.loss_fn_outputs, datums, strict=True)
                ],
                metrics=checked_metrics({name: float(value) for name, value in measured.items()}),
            )

    async def save(self, name: str, ttl_s: int | None) -> Checkpoint:
        with self._guarded():
            state = self._client.save_state(name, ttl_seconds=ttl_s, overwrite=True)
            sampler = self._client.save_weights_for_sampler(name, ttl_seconds=ttl_s)
            return Checkpoint(state_path=(await state).path, sampler_path=(await sampler).path)


def to_datum(datum: Datum) -> types.Datum:
    """One sequence as the SDK takes it; all arrays have length P + T − 1."""
    sequence = datum.sequence
    inputs = {name: types.TensorData.from_numpy(values) for name, values in datum.padded.items()}
    return types.Datum(
        model_input=types.ModelInput.from_ints(sequence[:-1]),
        loss_fn_inputs={"target_tokens": types.TensorData.from_numpy(np.array(sequence[1:], np.int64)), **inputs},
    )


async def open_training_client(
    service: tinker.ServiceClient, config: RunConfig, state_path: str | None, weights_only: bool = False
) -> tinker.TrainingClient:
    """The student's training client: a fresh adapter, or the recorded state with its optimizer or, `weights_only`, a fresh one."""
    client: tinker.TrainingClient
    if state_path is not None and weights_only:
        client = await service.create_training_client_from_state(state_path)
    elif state_path is not None:
        client = await service.create_training_client_from_state_with_optimizer(state_path)
    else:
        client = await service.create_lora_training_client(
            base_model=config.tinker.student, rank=config.tinker.lora_rank, seed=config.run.seed
        )
    return client
