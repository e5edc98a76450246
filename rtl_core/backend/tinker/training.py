"""The train step through a Tinker training client.

Alignment: a datum's input is the whole sequence without its last token and its target the sequence without its first, so
position t predicts token t + 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

import numpy as np
import tinker
from numpy.typing import NDArray
from tinker import types

from rtl_core.backend.base import Adam, Checkpoint, Datum, StepResult, checked_metrics
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
                logprobs=[found if found.ndim == 1 else found[:, 0] for found in _logprobs(output, datums)],
                metrics=checked_metrics({name: float(value) for name, value in measured.items()}),
            )

    async def logprobs(self, datums: Sequence[Datum]) -> list[NDArray[np.float64]]:
        with self._guarded():
            return _logprobs(await self._client.forward([to_datum(datum) for datum in datums], "cross_entropy"), datums)

    async def save(self, name: str, ttl_s: int | None) -> Checkpoint:
        with self._guarded():
            state = self._client.save_state(name, ttl_seconds=ttl_s, overwrite=True)
            sampler = self._client.save_weights_for_sampler(name, ttl_seconds=ttl_s)
            return Checkpoint(state_path=(await state).path, sampler_path=(await sampler).path)


def _logprobs(output: types.ForwardBackwardOutput, datums: Sequence[Datum]) -> list[NDArray[np.float64]]:
    return [
        datum.of_completion(record["logprobs"].to_numpy())
        for record, datum in zip(output.loss_fn_outputs, datums, strict=True)
    ]


def to_datum(datum: Datum) -> types.Datum:
    """One sequence as the SDK takes it; all arrays have length P + T − 1."""
    inputs = {name: types.TensorData.from_numpy(values) for name, values in datum.padded.items()}
    return types.Datum(
        model_input=types.ModelInput.from_ints(datum.sequence[:-1]),
        loss_fn_inputs={"target_tokens": types.TensorData.from_numpy(datum.targets), **inputs},
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
