"""Hand-written training passes of a LoRA adapter on a dense model, for CPUs: bounded memory, less time than autograd.

Autograd keeps every intermediate result of every layer (2.4 MB per token for a model of 135 million
parameters). Here a layer keeps the results of its matrix products and recomputes the cheap rest in the
backward pass. Frozen weights get no gradient. In float32 the adapter is added to a layer's weight while
that layer computes, so it costs nothing extra. Layers whose results exceed the budget are recomputed as a
whole (gradient checkpointing).

Supports the models of `modules.py`, and computes the same functions.

Shapes: B sequences, L positions, N rows (`packing.py`), H hidden, V vocabulary, K targets a position.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from localtinker.modules import rotated
from localtinker.packing import Layout, chunks

Pair = tuple[nn.Parameter, nn.Parameter]
"""A [r, in] and B [out, r] of an adapter."""
Pairs = Mapping[str, Pair]
Function = Callable[[Tensor], Tensor]
LossOf = Function
"""Maps log-probabilities [B, L, K] to the elementwise loss [B, L, K]."""
LOGIT_BYTES = 224 << 20  # logits kept for the backward pass, which recomputes the others
_CHUNK = 128  # positions whose gradient of the logits is in memory at once


class Projection:
    """Frozen linear layers with a common input, side by side, with optional low-rank terms: y = x (W + s B A)^T + b."""

    def __init__(
        self, model: nn.Module, names: Sequence[str], pairs: Pairs, scaling: float
    ) -> None:
        """`names`: of the layers, as in `pairs`."""
        modules: list[Any] = [model.get_submodule(name) for name in names]
        self._weights = [module.weight.detach() for module in modules]
        biases = [module.bias.detach() for module in modules if module.bias is not None]
        self._bias = torch.cat(biases) if biases else None
        self._pairs = [pairs.get(name) for name in names]
        self._sizes = [weight.shape[0] for weight in self._weights]
        self._scaling = scaling
        self.dtype = self._weights[0].dtype
        # In lower precision, adding would round the adapter away.
        self._merges = self.dtype == torch.float32

    def effective(self) -> Tensor:
        """Return W, or W + s B A in float32, of all layers together: [out, in]."""
        first = self._weights[0]
        out = first.new_empty(sum(self._sizes), first.shape[1])
        parts = out.split(self._sizes)
        for part, weight, pair in zip(parts, self._weights, self._pairs, strict=True):
            if pair is None or not self._merges:
                part.copy_(weight)
            else:
                torch.addmm(weight, pair[1], pair[0], alpha=self._scaling, out=part)
        return out

    def forward(
        self, x: Tensor, weight: Tensor | None = None, out: Tensor | None = None
    ) -> Tensor:
        """Return y [N, out] for x [N, in]. `weight`: the result of `effective`, if already computed."""
        if weight is None:
            weight = self.effective()
        y = torch.mm(x, weight.t(), out=out)
        if self._bias is not None:
            y += self._bias
        if not self._merges:
            for part, pair in self._adapted(y):
                lora_a, lora_b = (p.detach().to(self.dtype) for p in pair)
                inner = torch.mm(x, lora_a.t())
                part.addmm_(inner, lora_b.t(), alpha=self._scaling)
        return y

    def backward(self, x: Tensor, dy: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the gradient of x, and add those of A and B to the parameters' `grad`."""
        if weight is None:
            weight = self.effective()
        dx = torch.mm(dy, weight)
        for part, pair in self._adapted(dy):
            lora_a, lora_b = (p.detach().to(self.dtype) for p in pair)
            through_a = torch.mm(x, lora_a.t()).mul_(self._scaling)
            through_b = torch.mm(part, lora_b).mul_(self._scaling)
            d_lora_a = torch.mm(through_b.t(), x)
            d_lora_b = torch.mm(part.t(), through_a)
            _accumulate(pair[0], d_lora_a)
            _accumulate(pair[1], d_lora_b)
            if not self._merges:
                dx.addmm_(through_b, lora_a)
        return dx

    def _adapted(self, y: Tensor) -> Iterator[tuple[Tensor, Pair]]:
        """Yield the part of y [N, out] of each layer with an adapter, and its (A, B)."""
        parts = y.split(self._sizes, -1)
        for part, pair in zip(parts, self._pairs, strict=True):
            if pair is not None:
                yield part, pair


def _accumulate(parameter: nn.Parameter, gradient: Tensor) -> None:
    if parameter.grad is None:
        parameter.grad = gradient.to(parameter.dtype)
    else:
        parameter.grad += gradient


@dataclass(frozen=True)
class _Activations:
    """Results of a layer's forward pass that its backward pass needs."""

    x: Tensor
    qkv: Tensor  # requires grad; `attended` depends on it
    attended: Tensor
    middle: Tensor  # the residual stream between attention and MLP
    gate_up: Tensor


class _Layer:
    def __init__(self, name: str, model: Any, pairs: Pairs, scaling: float) -> None:
        def projection(*parts: str) -> Projection:
            names = [f"{name}.{part}_proj" for part in parts]
            return Projection(model, names, pairs, scaling)

        config = model.config
        layer = model.get_submodule(name)
        self._heads = config.num_attention_heads
        self._kv_heads = config.num_key_value_heads
        self._head_dim = layer.self_attn.head_dim
        self._qkv = projection("self_attn.q", "self_attn.k", "self_attn.v")
        self._o = projection("self_attn.o")
        self._gate_up = projection("mlp.gate", "mlp.up")
        self._down = projection("mlp.down")
        self._norm_in = layer.input_layernorm
        self._norm_mlp = layer.post_attention_layernorm
        self._norm_q = self._norm_k = None
        if hasattr(layer.self_attn, "q_norm"):
            self._norm_q = layer.self_attn.q_norm.weight
            self._norm_k = layer.self_attn.k_norm.weight
        self._eps = config.rms_norm_eps

    def forward(
        self, x: Tensor, rope: tuple[Tensor, Tensor], layout: Layout, *, keep: bool
    ) -> tuple[Tensor, _Activations]:
        """Return the layer's output for x [N, H], and its results, which `backward` can use if `keep` is true."""
        qkv = self._qkv.forward(self._norm(x, self._norm_in))
        with torch.set_grad_enabled(keep):
            attended = self._attend(qkv.requires_grad_(keep), rope, layout)
        middle = x + self._o.forward(attended.detach())
        gate_up = self._gate_up.forward(self._norm(middle, self._norm_mlp))
        out = self._down.forward(_gated(gate_up)).add_(middle)
        return out, _Activations(x, qkv, attended, middle, gate_up)

    def backward(self, results: _Activations, dx: Tensor) -> Tensor:
        """Return the gradient of the layer's input, given that of its output, which is overwritten."""
        d_gate_up = _through(_gated, results.gate_up, lambda act: self._down.backward(act, dx))
        dx += _through(
            lambda middle: self._norm(middle, self._norm_mlp),
            results.middle,
            lambda h: self._gate_up.backward(h, d_gate_up),
        )
        d_attended = self._o.backward(results.attended.detach(), dx)
        (d_qkv,) = torch.autograd.grad(results.attended, results.qkv, d_attended)
        dx += _through(
            lambda x: self._norm(x, self._norm_in),
            results.x,
            lambda h: self._qkv.backward(h, d_qkv),
        )
        return dx

    def _norm(self, x: Tensor, norm: Any) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), norm.weight, self._eps)

    def _attend(self, qkv: Tensor, rope: tuple[Tensor, Tensor], layout: Layout) -> Tensor:
        """Return causal attention [N, heads D] within the sequences of a layout."""
        heads = (self._heads, self._kv_heads, self._kv_heads)
        states = qkv.view(-1, sum(heads), self._head_dim)
        q, k, v = states.split(heads, 1)
        if self._norm_q is not None and self._norm_k is not None:
            shape = (self._head_dim,)
            q = F.rms_norm(q, shape, self._norm_q, self._eps)
            k = F.rms_norm(k, shape, self._norm_k, self._eps)
        q = rotated(q, *rope)
        k = rotated(k, *rope)
        return layout.attention(q, k, v)


def _gated(gate_up: Tensor) -> Tensor:
    gate, up = gate_up.chunk(2, -1)
    return F.silu(gate) * up


def _through(function: Function, x: Tensor, backward: Function) -> Tensor:
    """Return the gradient of x. `backward` maps function(x), which is recomputed, to its gradient."""
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        y = function(leaf)
    dy = backward(y.detach())
    (dx,) = torch.autograd.grad(y, leaf, dy)
    return dx


class DenseTraining:
    """Passes of an adapter on a model. Gradients are added to the `grad` of the parameters in `pairs`."""

    def __init__(
        self,
        model: Any,
        pairs: Pairs,
        scaling: float,
        *,
        budget_bytes: int,
        trains: bool = True,
    ) -> None:
        """`pairs`: (A, B) by module name; `budget_bytes`: limit of what the layers keep; without `trains`:
        forward only."""
        inner = model.model
        self._embed = inner.embed_tokens.weight.detach()
        self._rotary = inner.rotary_emb
        self._norm = inner.norm.weight.detach()
        self._eps = model.config.rms_norm_eps
        self._head = Projection(model, ["lm_head"], pairs, scaling)
        names = [f"model.layers.{number}" for number in range(len(inner.layers))]
        self._layers = [_Layer(name, model, pairs, scaling) for name in names]
        self._budget_bytes = budget_bytes
        self._trains = trains
        self._row_bytes, self._key_bytes = layer_bytes(model)

    @torch.no_grad()
    def forward_backward(
        self, sequences: Sequence[np.ndarray], targets_BLK: Tensor, loss_of: LossOf
    ) -> tuple[Tensor, Tensor]:
        """Return log p of the targets and the loss, both [B, L, K], and add the gradient of the summed loss.

        Common prefixes of the sequences, of at most L tokens, are computed once.
        """
        layout = Layout(sequences)
        rope = self._rope(layout)
        x = F.embedding(layout.tokens_N, self._embed)
        bytes_of_layer = self._row_bytes * len(x) + self._key_bytes * layout.keys
        first_within = len(self._layers) - self._budget_bytes // bytes_of_layer
        memory: list[
            _Activations | Tensor
        ] = []  # for layers above the budget, their input only
        for index, layer in enumerate(self._layers):
            keep = self._trains and index >= first_within
            out, results = layer.forward(x, rope, layout, keep=keep)
            if self._trains:
                memory.append(results if keep else x)
            x = out
            del results
        result: list[Tensor] = []

        def through_head(hidden_NH: Tensor) -> Tensor:
            logp_BLK, loss_BLK, gradient_NH = self._through_head(
                hidden_NH, layout, targets_BLK, loss_of
            )
            result.extend((logp_BLK, loss_BLK))
            return gradient_NH

        def norm(x: Tensor) -> Tensor:
            return F.rms_norm(x, (x.shape[-1],), self._norm, self._eps)

        if not self._trains:
            through_head(norm(x))
            return result[0], result[1]
        dx = _through(norm, x, through_head)
        for layer in reversed(self._layers):
            last = memory.pop()
            if isinstance(last, Tensor):
                last = layer.forward(last, rope, layout, keep=True)[1]
            dx = layer.backward(last, dx)
            del last
        return result[0], result[1]

    def _through_head(
        self, hidden_NH: Tensor, layout: Layout, targets_BLK: Tensor, loss_of: LossOf
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-probabilities, loss and, in training, the gradient of the final hidden states.

        P is the number of positions of all sequences; several positions share a row where a prefix is shared.
        """
        weight_VH = self._head.effective()
        mask_BL = torch.zeros(targets_BLK.shape[:2], dtype=torch.bool)
        for mask_L, rows in zip(mask_BL, layout.rows, strict=True):
            mask_L[: len(rows)] = True
        # Sort positions by row, so that those of a chunk of rows are adjacent.
        rows_P = torch.from_numpy(np.concatenate(layout.rows))
        row_P, order_P = rows_P.sort(stable=True)
        target_PK = targets_BLK[mask_BL][order_P]
        count = len(hidden_NH)
        vocabulary = weight_VH.shape[0]
        spans = chunks(0, count, _CHUNK)
        starts = torch.tensor([*(start for start, _ in spans), count])
        bounds = torch.searchsorted(row_P, starts).tolist()
        positions = [slice(*bound) for bound in itertools.pairwise(bounds)]
        fitting = LOGIT_BYTES // (vocabulary * weight_VH.itemsize) if self._trains else 0
        buffer = hidden_NH.new_empty(min(fitting, count), vocabulary)
        logp_PK = torch.empty(target_PK.shape)
        normaliser = []
        for (start, end), here in zip(spans, positions, strict=True):
            out = buffer[start:end] if end <= len(buffer) else None
            logits = self._head.forward(hidden_NH[start:end], weight_VH, out).float()
            total = logits.logsumexp(-1, keepdim=True)
            normaliser.append(total)
            row = row_P[here] - start
            own_logits = logits[row[:, None], target_PK[here]]
            logp_PK[here] = own_logits - total[row]
        logp_BLK = torch.zeros(targets_BLK.shape)
        unordered = mask_BL.flatten().nonzero()[:, 0]
        places = unordered[order_P]
        logp_BLK.flatten(0, 1)[places] = logp_PK
        if not self._trains:
            return logp_BLK, loss_of(logp_BLK), hidden_NH
        with torch.enable_grad():
            loss_BLK = loss_of(logp_BLK.requires_grad_())
            (gradient,) = torch.autograd.grad(loss_BLK.sum(), logp_BLK)
        gradient_PK = gradient.flatten(0, 1)[places]
        d_hidden = torch.zeros_like(hidden_NH)
        for (start, end), here, total in zip(spans, positions, normaliser, strict=True):
            trained = gradient_PK[here].any(-1)  # false in prompts
            if not trained.any():
                continue
            g_PK = gradient_PK[here][trained]
            target = target_PK[here][trained]
            row = row_P[here][trained] - start
            rows, row = row.unique(return_inverse=True)
            x = hidden_NH[start:end][rows]
            fits = end <= len(buffer)
            logits = buffer[start:end][rows] if fits else self._head.forward(x, weight_VH)
            d_logits = _logit_gradient(logits.float(), total[rows], row, target, g_PK)
            dx = self._head.backward(x, d_logits.to(x.dtype), weight_VH)
            d_hidden[start + rows] = dx
        return logp_BLK.detach(), loss_BLK.detach(), d_hidden

    def _rope(self, layout: Layout) -> tuple[Tensor, Tensor]:
        """Return cosines and signed sines of each row, [N, 1, D] each."""
        table = self._rotary.table(self._embed, layout.longest)
        rope = table[layout.positions_N, None]
        cos, signed_sin = rope.chunk(2, -1)
        return cos, signed_sin


def _logit_gradient(
    logits: Tensor, total: Tensor, row: Tensor, target: Tensor, g_PK: Tensor
) -> Tensor:
    """Return the gradient of logits [rows, V], which are overwritten, given that of log p of targets.

    `total`: the log of the sum of the exponentials of each row; `row`: of each position; `target` and its gradient
    `g_PK`: [P, K].
    """
    total_P = g_PK.sum(-1, keepdim=True)
    sums = torch.zeros(len(logits), 1).index_add_(0, row, total_P)
    probabilities = logits.sub_(total).exp_()
    d_logits = probabilities.mul_(-sums)
    places = row[:, None].expand_as(target), target
    return d_logits.index_put_(places, g_PK, accumulate=True)


def layer_bytes(model: Any) -> tuple[int, int]:
    """Return the bytes that a layer keeps per row of a pass, and per key row that attention copies."""
    config = model.config
    queries = config.num_attention_heads * config.head_dim
    keys = config.num_key_value_heads * config.head_dim
    attention = 2 * queries + keys
    numbers = 2 * (config.hidden_size + attention + config.intermediate_size)
    itemsize = model.dtype.itemsize
    return numbers * itemsize, 2 * keys * itemsize
