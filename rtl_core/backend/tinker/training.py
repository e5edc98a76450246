"""The train step through a Tinker training client.

Alignment: a datum's input is the sequence without its last token, and its target the sequence without its
first token. Position t thus predicts token t + 1.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import tinker
from tinker import types

from rtl_core.at_work import outstanding
from rtl_core.backend.base import Adam, Check, Checkpoint, Datum, StepResult, checked_metrics
from rtl_core.backend.tinker.marks import Marks, step_of
from rtl_core.config import RunConfig
from rtl_core.types.numbers import Floats


class TinkerTrainer:
    """See `Trainer`."""

    def __init__(
        self,
        client: tinker.TrainingClient,
        errors: Callable[[], AbstractContextManager[None]],
        marks: Marks,
        newest: set[str],
    ) -> None:
        """`errors`: context manager around all requests that translates SDK errors into ours. `marks`: of the
        weights that it saves. `newest`: holds the path of the last saved sampler weights as long as no step follows
        them."""
        self._client = client
        self._errors = errors
        self._marks = marks
        self._newest = newest
        self._saved = ""
        self.console_url: str | None = None
        """Page of the training run, if the service has a console."""

    async def step(
        self,
        datums: Sequence[Datum],
        loss: str,
        parameters: Mapping[str, float],
        adam: Adam,
        check: Check | None = None,
    ) -> StepResult:
        batch = [to_datum(datum) for datum in datums]
        self._newest.discard(self._saved)
        with self._errors():
            backward = self._client.forward_backward(batch, loss, dict(parameters) or None)  # type: ignore[arg-type]
            params = types.AdamParams(**vars(adam))
            # Without a check both are submitted before either is awaited, so that the service runs them in one cycle.
            optim = None if check else self._client.optim_step(params)
            output = await outstanding("forward_backward", backward)
            logprobs = [
                values if values.ndim == 1 else values[:, 0]
                for values in _logprobs(output, datums)
            ]
            if check:
                check(logprobs)
            optim_output = await outstanding(
                "optim_step", optim or self._client.optim_step(params)
            )
            metrics = {**output.metrics, **(optim_output.metrics or {})}
            return StepResult(
                examples=len(batch),
                tokens=sum(datum.model_input.length for datum in batch),
                logprobs=logprobs,
                metrics=checked_metrics(
                    {name: float(value) for name, value in metrics.items()}
                ),
            )

    async def logprobs(self, datums: Sequence[Datum]) -> list[Floats]:
        with self._errors():
            request = self._client.forward(
                [to_datum(datum) for datum in datums], "cross_entropy"
            )
            return _logprobs(await outstanding("forward", request), datums)

    async def save(self, name: str, ttl_s: int | None) -> Checkpoint:
        with self._errors():
            marks = {**self._marks, **step_of(name)}
            state = self._client.save_state(name, ttl_s, overwrite=True, user_metadata=marks)
            sampler = self._save_sampler(name, ttl_s)
            state_path = (await outstanding("save_state", state)).path
            return Checkpoint(state_path=state_path, sampler_path=await self._path_of(sampler))

    async def save_for_sampler(self, name: str, ttl_s: int | None) -> str:
        """Save only sampler weights. Returns their path."""
        with self._errors():
            return await self._path_of(self._save_sampler(name, ttl_s))

    def _save_sampler(self, name: str, ttl_s: int | None) -> Awaitable[Any]:
        marks = {**self._marks, **step_of(name)}
        return self._client.save_weights_for_sampler(name, ttl_s, user_metadata=marks)

    async def _path_of(self, sampler: Awaitable[Any]) -> str:
        """Wait for saved sampler weights, and note that they are the newest. Returns their path."""
        path: str = (await outstanding("save_weights_for_sampler", sampler)).path
        self._newest.discard(self._saved)
        self._newest.add(path)
        self._saved = path
        return path


def _logprobs(output: types.ForwardBackwardOutput, datums: Sequence[Datum]) -> list[Floats]:
    return [
        datum.completion_logprobs(record["logprobs"].to_numpy())
        for record, datum in zip(output.loss_fn_outputs, datums, strict=True)
    ]


def to_datum(datum: Datum) -> types.Datum:
    """Convert one sequence to the SDK's format. All arrays have length P + T − 1."""
    inputs = {
        name: types.TensorData.from_numpy(values) for name, values in datum.padded.items()
    }
    return types.Datum(
        model_input=types.ModelInput.from_ints(datum.sequence[:-1]),
        loss_fn_inputs={"target_tokens": types.TensorData.from_numpy(datum.targets), **inputs},
    )


async def open_training_client(
    service: tinker.ServiceClient,
    config: RunConfig,
    state_path: str | None,
    weights_only: bool = False,
    marks: Marks | None = None,
) -> tinker.TrainingClient:
    """Open the student's training client: a new adapter, or a saved state with its optimizer
    (`weights_only`: with a new one)."""
    client: tinker.TrainingClient
    if state_path is None:
        client = await service.create_lora_training_client(
            base_model=config.tinker.student,
            rank=config.tinker.lora_rank,
            seed=config.run.seed,
            user_metadata=marks,
        )
        return client
    create = service.create_training_client_from_state_with_optimizer
    if weights_only:
        create = service.create_training_client_from_state
    client = await create(state_path, user_metadata=marks)
    return client
