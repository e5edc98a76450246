"""Training clients: gradients of a LoRA adapter, AdamW steps, saving and loading, and parking on disk when idle."""

from __future__ import annotations

import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from localtinker.dense_training import DenseTraining
from localtinker.devices import give_back_free_memory
from localtinker.errors import NotFoundError, RequestError
from localtinker.lora import LoraSpec, Tensors, read_adapter, read_tensors, write_adapter
from localtinker.losses import LOSSES
from localtinker.models import ServedModel
from localtinker.packing import Passes, Sequences, packed_passes, padded, padded_passes
from localtinker.registry import Registry
from localtinker.requests import AdamParams
from localtinker.scoring import gather_logprobs
from localtinker.wire import TrainDatum, TrainRequest

logger = logging.getLogger(__name__)
Logprobs = Callable[[Sequences, Tensor], Tensor]
"""Maps B sequences of at most L tokens and targets [B, L, K] to log p of the targets, [B, L, K], float32."""
BatchResult = tuple[dict[str, list[np.ndarray]], dict[str, float]]
"""The outputs of a pass, an array for each datum, and its metrics."""
ACTIVATION_BYTES = 384 << 20  # what the layers of `DenseTraining` keep
LOGIT_BUDGET = 2**25  # logits in memory at once in a forward pass: 128 MiB


class TrainingModel:
    """A training client's adapter and optimizer. All methods run on the compute thread."""

    def __init__(
        self, model_id: str, base: ServedModel, spec: LoraSpec, *, micro_tokens: int
    ) -> None:
        """`micro_tokens`: limit of the tokens in a pass, see `padded_passes` and `packed_passes`."""
        self.model_id = model_id
        self.base = base
        self.spec = spec
        self._micro_tokens = micro_tokens
        base.adapters.add(model_id, spec)
        self._parameters = base.adapters.parameters(model_id)
        self._optimizer = torch.optim.AdamW(self._parameters, foreach=True)

    @property
    def has_gradients(self) -> bool:
        return any(p.grad is not None for p in self._parameters)

    def release(self) -> None:
        """Free the adapter. The object must not be used afterwards."""
        self.base.adapters.remove(self.model_id)

    def forward_backward(self, request: TrainRequest) -> BatchResult:
        """Compute loss and log-probabilities of a batch, and add its gradients unless `forward_only`.

        Returns the outputs per datum and the metrics `loss:sum`, `tokens:sum` (trained positions) and
        `input_tokens:sum` (all positions, which training is charged by). If it fails, all gradients of this
        client are dropped.
        """
        self.base.adapters.activate(self.model_id)
        trains = not request.forward_only
        sequences = [datum.tokens_T for datum in request.data]
        logprobs_of: Logprobs = self._logprobs
        passes_of = padded_passes
        if self.base.trains_by_hand:
            model = self.base.model
            pairs = self.base.adapters.pairs(self.model_id)
            logprobs_of = DenseTraining(
                model, pairs, self.spec.scaling, budget_bytes=ACTIVATION_BYTES
            ).logprobs
            passes_of = packed_passes
        try:
            if trains and self.base.recompute:
                self.base.model.train()  # activations are recomputed in training mode only; dropout is 0
            with torch.set_grad_enabled(trains):
                return self._run(request, logprobs_of, passes_of(sequences, self._micro_tokens))
        except BaseException:
            if trains:
                self._optimizer.zero_grad(set_to_none=True)
            raise
        finally:
            if self.base.recompute:
                self.base.model.eval()
            if self.base.trains_by_hand:
                del logprobs_of
                give_back_free_memory()

    def _run(self, request: TrainRequest, logprobs_of: Logprobs, passes: Passes) -> BatchResult:
        """Run the passes of a request, given by the indices of their data, and combine their results."""
        count = len(request.data)
        logprobs: list[np.ndarray] = [np.zeros(0)] * count
        losses: list[np.ndarray] = [np.zeros(0)] * count
        total = 0.0
        for index in passes:
            data = [request.data[i] for i in index]
            logp_BLK, loss_BLK = self._micro_batch(data, request, logprobs_of)
            total += float(loss_BLK.sum(dtype=torch.float64))
            for i, datum, logp_LK, loss_LK in zip(index, data, logp_BLK, loss_BLK, strict=True):
                shape = datum.inputs["target_tokens"].shape
                length, width = datum.matrix("target_tokens").shape
                here = slice(length), slice(width)
                logprobs[i] = logp_LK[here].reshape(shape).numpy()
                losses[i] = loss_LK[here].reshape(shape).numpy()
        tokens = sum(len(datum.tokens_T) for datum in request.data)
        metrics = {
            "loss:sum": total,
            "tokens:sum": float(sum(map(_trained_positions, request.data))),
            "input_tokens:sum": float(tokens),
        }
        return {"logprobs": logprobs, "elementwise_loss": losses}, metrics

    def _micro_batch(
        self, data: Sequence[TrainDatum], request: TrainRequest, logprobs_of: Logprobs
    ) -> tuple[Tensor, Tensor]:
        """Run one pass and add its gradients, if they are enabled. Returns detached log-probabilities and
        loss, [B, L, K] on the CPU."""
        loss = LOSSES[request.loss_fn]
        device = self.base.device
        inputs, mask_BLK = collate(data, loss.required + loss.optional)
        inputs = {name: tensor.to(device) for name, tensor in inputs.items()}
        sequences = [datum.tokens_T for datum in data]
        logp_BLK = logprobs_of(sequences, inputs["target_tokens"])
        loss_BLK = loss.function(logp_BLK, inputs, {**loss.parameters, **request.config})
        loss_BLK = loss_BLK * mask_BLK.to(device)
        if torch.is_grad_enabled():
            loss_BLK.sum().backward()
        return logp_BLK.detach().cpu(), loss_BLK.detach().cpu()

    def _logprobs(self, sequences: Sequences, targets_BLK: Tensor) -> Tensor:
        """Return log p of the targets, [B, L, K], float32.

        Right padding needs no attention mask, because attention is causal. With a large vocabulary the head
        runs in chunks that are recomputed in the backward pass.
        """
        tokens_BL = padded(sequences).to(self.base.device)
        model = self.base.model
        if not self.base.split_head:
            return gather_logprobs(
                model(input_ids=tokens_BL, use_cache=False).logits, targets_BLK
            )
        hidden_BLH = self.base.hidden(tokens_BL)

        def head(hidden: Tensor, targets: Tensor) -> Tensor:
            return gather_logprobs(model.lm_head(hidden), targets)

        count, length = tokens_BL.shape
        step = max(1, LOGIT_BUDGET // (self.base.vocab_size * count))
        if step >= length:
            return head(hidden_BLH, targets_BLK)
        hidden = hidden_BLH.split(step, 1)
        targets = targets_BLK.split(step, 1)
        pieces = zip(hidden, targets, strict=True)
        parts = [checkpoint(head, *piece, use_reentrant=False) for piece in pieces]
        return torch.cat(parts, 1)

    def optim_step(self, params: AdamParams) -> dict[str, float]:
        """Take one AdamW step with the accumulated gradients and clear them.

        The reported gradient norm is that before clipping. Without
        gradients nothing changes.
        """
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        total = torch.nn.utils.get_total_norm(gradients)
        norm = float(total)
        if not math.isfinite(norm):
            self._optimizer.zero_grad(set_to_none=True)
            raise RequestError(
                f"optim_step: the gradient norm is {norm}; the gradients were dropped and no weight was changed"
            )
        if params.grad_clip_norm > 0:
            torch.nn.utils.clip_grads_with_norm_(self._parameters, params.grad_clip_norm, total)
        for group in self._optimizer.param_groups:
            group.update(
                lr=params.learning_rate,
                betas=(params.beta1, params.beta2),
                eps=params.eps,
                weight_decay=params.weight_decay,
            )
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return {"grad_norm:mean": norm}

    def save(self, folder: Path, *, optimizer: bool) -> None:
        """Write the adapter as a peft folder, with the optimizer state in `optimizer.safetensors` if requested."""
        tensors = self.base.adapters.tensors(self.model_id)
        write_adapter(folder, tensors, self.spec, str(self.base.path))
        if optimizer:
            flat = {}
            for index, state in self._optimizer.state_dict()["state"].items():
                for key, value in state.items():
                    copy = value.detach().cpu().contiguous().clone()
                    flat[f"{index}.{key}"] = copy
            save_file(flat, folder / "optimizer.safetensors")

    def load(self, folder: Path, *, optimizer: bool) -> None:
        """Load the weights of a saved folder, and its optimizer state or a fresh one. Gradients are dropped."""
        self.base.adapters.load(self.model_id, read_adapter(folder))
        self._optimizer.zero_grad(set_to_none=True)
        states: dict[int, Tensors] = defaultdict(dict)
        if optimizer:
            for name, tensor in read_tensors(folder / "optimizer.safetensors").items():
                index, _, key = name.partition(".")
                if key:
                    states[int(index)][key] = tensor
        self._optimizer.load_state_dict({**self._optimizer.state_dict(), "state": states})


def _trained_positions(datum: TrainDatum) -> int:
    for name in ("weights", "advantages"):
        if name in datum.inputs:
            return int(np.count_nonzero(datum.inputs[name]))
    return len(datum.tokens_T)


def collate(
    data: Sequence[TrainDatum], names: Sequence[str]
) -> tuple[dict[str, Tensor], Tensor]:
    """Return the right-padded inputs of a batch, each [B, L, K], and the mask [B, L, K] of positions that
    are not padding.

    `weights` defaults to 1. Other inputs in `names` are included if a datum has them, and 1 in those that have not.
    """
    targets = [datum.matrix("target_tokens") for datum in data]
    batch_shape = len(data), *np.max([target.shape for target in targets], axis=0)

    def stacked(values: Sequence[np.ndarray], dtype: type[np.generic] = np.float32) -> Tensor:
        array = np.zeros(batch_shape, dtype)
        for row, value in zip(array, values, strict=True):
            length, width = value.shape
            row[:length, :width] = value
        return torch.from_numpy(array)

    mask = stacked([np.ones(target.shape) for target in targets])
    inputs = {"target_tokens": stacked(targets, np.int64), "weights": mask}
    for name in names:
        if any(name in datum.inputs for datum in data):
            inputs[name] = stacked([datum.matrix(name) for datum in data])
    return inputs, mask


@dataclass
class Client:
    """A training client. `model` is None while it is parked on disk, in blob `parked`."""

    model_id: str
    session_id: str
    base: ServedModel
    spec: LoraSpec
    model: TrainingModel | None = None
    parked: str | None = None
    last_used: float = field(default_factory=time.monotonic)


class Clients:
    """All training clients of a service. Methods that use a model (`create`, `live`, `park`, `drop`) run on
    the compute thread."""

    def __init__(self, registry: Registry, *, micro_tokens: int) -> None:
        self._registry = registry
        self._micro_tokens = micro_tokens
        self._clients: dict[str, Client] = {}

    def __len__(self) -> int:
        return len(self._clients)

    @property
    def resident(self) -> int:
        """Number of adapters in memory."""
        return sum(client.model is not None for client in self._all())

    def _all(self) -> list[Client]:
        """Return a copy, which another thread does not change."""
        return list(self._clients.values())

    def get(self, model_id: str) -> Client:
        """Return a live or parked client. Raises NotFoundError if there is none, for instance after a restart."""
        client = self._clients.get(model_id)
        if client is None:
            raise NotFoundError(
                f"model_id: there is no training client {model_id!r}; after a restart, create one from a saved state"
            )
        client.last_used = time.monotonic()
        return client

    def create(
        self,
        model_id: str,
        session_id: str,
        base: ServedModel,
        spec: LoraSpec,
        metadata: dict[str, Any] | None,
    ) -> None:
        self._registry.add_run(
            model_id, session_id, base.name, spec.model_dump_json(), metadata
        )
        client = Client(model_id, session_id, base, spec)
        client.model = self._model(client)
        self._clients[model_id] = client

    def _model(self, client: Client) -> TrainingModel:
        micro_tokens = self._micro_tokens
        return TrainingModel(
            client.model_id, client.base, client.spec, micro_tokens=micro_tokens
        )

    def live(self, model_id: str) -> TrainingModel:
        """Return the model of a client, loaded from disk if it was parked."""
        client = self.get(model_id)
        if client.model is None:
            assert client.parked is not None
            model = self._model(client)
            try:
                model.load(self._registry.blob_path(client.parked), optimizer=True)
            except BaseException:
                model.release()
                raise
            client.model = model
            self._registry.release_blob(client.parked)
            client.parked = None
        return client.model

    def idle(self, seconds: float) -> list[str]:
        """Return the clients in memory that were not used for `seconds`."""
        before = time.monotonic() - seconds
        return [c.model_id for c in self._all() if c.model and c.last_used < before]

    def orphaned(self) -> list[str]:
        """Return the clients whose session is over."""
        return [c.model_id for c in self._all() if self._registry.is_over(c.session_id)]

    def park(self, model_id: str) -> None:
        """Move a client to disk, unless it holds gradients of an unfinished step."""
        client = self._clients.get(model_id)
        if client is None or client.model is None or client.model.has_gradients:
            return
        save = partial(client.model.save, optimizer=True)
        client.parked, _ = self._registry.write_blob(save, durable=False)
        client.model.release()
        client.model = None
        logger.info("parked idle training client %s", model_id)

    def drop(self, model_id: str) -> None:
        """Delete a client; its checkpoints stay."""
        client = self._clients.pop(model_id, None)
        if client is None:
            return
        if client.model is not None:
            client.model.release()
        if client.parked is not None:
            self._registry.release_blob(client.parked)
