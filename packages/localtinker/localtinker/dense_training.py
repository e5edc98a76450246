"""Training passes of a LoRA adapter on a dense model, for CPUs: bounded memory, less time than plain autograd.

Autograd keeps every intermediate result of every layer (2.4 MB per token for a model of 135 million
parameters). Here the matrix products are functions with their own backward pass: a layer keeps its results
and recomputes the cheap rest. Frozen weights get no gradient. In float32 the adapter is added to a layer's
weight while that layer computes, so it costs nothing extra. Layers whose results exceed the budget are
recomputed as a whole (gradient checkpointing).

Supports the models of `modules.py`, and computes the same functions.

Shapes: B sequences, L positions, N rows (`packing.py`), H hidden, V vocabulary, K targets a position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from localtinker.lora import Pair, Pairs
from localtinker.modules import rotated
from localtinker.packing import Layout, Sequences, chunks

Function = Callable[[Tensor], Tensor]
Place = tuple[Tensor, Tensor]
"""The row of each position [P], and its targets [P, K]."""
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

    @torch.no_grad()
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

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        """Return y [N, out] for x [N, in]. `weight`: the result of `effective`."""
        y = torch.mm(x, weight.t())
        if self._bias is not None:
            y += self._bias
        if not self._merges:
            for part, _, (lora_a, lora_b) in self._adapted(y):
                inner = torch.mm(x, lora_a.t())
                part.addmm_(inner, lora_b.t(), alpha=self._scaling)
        return y

    def backward(self, x: Tensor, dy: Tensor, weight: Tensor) -> Tensor:
        """Return the gradient of x, and add those of A and B to the parameters' `grad`."""
        dx = torch.mm(dy, weight)
        for part, pair, (lora_a, lora_b) in self._adapted(dy):
            through_a = torch.mm(x, lora_a.t()).mul_(self._scaling)
            through_b = torch.mm(part, lora_b).mul_(self._scaling)
            d_lora_a = torch.mm(through_b.t(), x)
            d_lora_b = torch.mm(part.t(), through_a)
            _accumulate(pair[0], d_lora_a)
            _accumulate(pair[1], d_lora_b)
            if not self._merges:
                dx.addmm_(through_b, lora_a)
        return dx

    def _adapted(self, y: Tensor) -> Iterator[tuple[Tensor, Pair, list[Tensor]]]:
        """Yield the part of y [N, out] of each layer with an adapter, its (A, B), and these in the layer's type."""
        parts = y.split(self._sizes, -1)
        for part, pair in zip(parts, self._pairs, strict=True):
            if pair is not None:
                yield part, pair, [p.detach().to(self.dtype) for p in pair]


def _accumulate(parameter: nn.Parameter, gradient: Tensor) -> None:
    if parameter.grad is None:
        parameter.grad = gradient.to(parameter.dtype)
    else:
        parameter.grad += gradient


class _Product(torch.autograd.Function):
    """The projection of function(x). Its backward pass recomputes function(x)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, function: Function, projection: Projection) -> Tensor:
        ctx.save_for_backward(x)
        ctx.function = function
        ctx.projection = projection
        return projection.forward(function(x), projection.effective())

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        leaf = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            h = ctx.function(leaf)
        weight = ctx.projection.effective()
        dh = ctx.projection.backward(h.detach(), dy, weight)
        return *torch.autograd.grad(h, leaf, dh), None, None


class _Layer:
    def __init__(self, name: str, model: Any, pairs: Pairs, scaling: float) -> None:
        def projection(*parts: str) -> Projection:
            names = [f"{name}.{part}_proj" for part in parts]
            return Projection(model, names, pairs, scaling)

        def norm(module: Any) -> Function:
            return _norm(module.weight, model.config.rms_norm_eps)

        layer = model.get_submodule(name)
        attention = layer.self_attn
        self._heads = model.config.num_attention_heads
        self._kv_heads = model.config.num_key_value_heads
        self._head_dim = attention.head_dim
        self._qkv = projection("self_attn.q", "self_attn.k", "self_attn.v")
        self._o = projection("self_attn.o")
        self._gate_up = projection("mlp.gate", "mlp.up")
        self._down = projection("mlp.down")
        self._norm_in = norm(layer.input_layernorm)
        self._norm_mlp = norm(layer.post_attention_layernorm)
        self._norm_q: Function = _unchanged
        self._norm_k: Function = _unchanged
        if hasattr(attention, "q_norm"):
            self._norm_q = norm(attention.q_norm)
            self._norm_k = norm(attention.k_norm)

    def __call__(self, x: Tensor, rope: Sequence[Tensor], layout: Layout) -> Tensor:
        """Return the layer's output for x [N, H]. `rope`: cosines and signed sines of each row, [N, 1, D] each."""
        qkv = _Product.apply(x, self._norm_in, self._qkv)
        attended = self._attend(qkv, rope, layout)
        x = x + _Product.apply(attended, _unchanged, self._o)
        gate_up = _Product.apply(x, self._norm_mlp, self._gate_up)
        return x + _Product.apply(gate_up, _gated, self._down)

    def _attend(self, qkv: Tensor, rope: Sequence[Tensor], layout: Layout) -> Tensor:
        """Return causal attention [N, heads D] within the sequences of a layout."""
        heads = (self._heads, self._kv_heads, self._kv_heads)
        states = qkv.view(-1, sum(heads), self._head_dim)
        q, k, v = states.split(heads, 1)
        q = rotated(self._norm_q(q), *rope)
        k = rotated(self._norm_k(k), *rope)
        return layout.attention(q, k, v)


def _norm(weight: Tensor, eps: float) -> Function:
    return partial(F.rms_norm, normalized_shape=weight.shape, weight=weight, eps=eps)


def _unchanged(x: Tensor) -> Tensor:
    return x


def _gated(gate_up: Tensor) -> Tensor:
    gate, up = gate_up.chunk(2, -1)
    return F.silu(gate) * up


class _TargetLogprobs(torch.autograd.Function):
    """log p [P, K] of targets, given final hidden states x [rows, H] and the row of each position.

    Keeps the logits for the backward pass, or computes them again. Positions without a gradient cost nothing then.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, head: Projection, weight: Tensor, place: Place, keep: bool
    ) -> Tensor:
        row, target = place
        logits = head.forward(x, weight)
        kept = [logits] if keep else []
        logits = logits.float()
        total = logits.logsumexp(-1, keepdim=True)
        ctx.save_for_backward(x, row, target, total, *kept)
        ctx.head = head
        ctx.weight = weight
        return logits[row[:, None], target] - total[row]

    @staticmethod
    def backward(ctx: Any, g_PK: Tensor) -> Any:
        x, row, target, total, *kept = ctx.saved_tensors
        dx = torch.zeros_like(x)
        trained = g_PK.any(-1)  # false in prompts
        if trained.any():
            rows, row = row[trained].unique(return_inverse=True)
            x = x[rows]
            logits = kept[0][rows] if kept else ctx.head.forward(x, ctx.weight)
            d_logits = _logit_gradient(
                logits.float(), total[rows], row, target[trained], g_PK[trained]
            )
            dx[rows] = ctx.head.backward(x, d_logits.to(x.dtype), ctx.weight)
        return dx, None, None, None, None


class DenseTraining:
    """Passes of an adapter on a model. Gradients are added to the `grad` of the parameters in `pairs`."""

    def __init__(self, model: Any, pairs: Pairs, scaling: float, *, budget_bytes: int) -> None:
        """`pairs`: (A, B) by module name; `budget_bytes`: limit of what the layers keep."""
        inner = model.model
        self._embed = inner.embed_tokens.weight.detach()
        self._rotary = inner.rotary_emb
        self._norm = _norm(inner.norm.weight, model.config.rms_norm_eps)
        self._head = Projection(model, ["lm_head"], pairs, scaling)
        names = [f"model.layers.{number}" for number in range(len(inner.layers))]
        self._layers = [_Layer(name, model, pairs, scaling) for name in names]
        self._budget_bytes = budget_bytes
        self._row_bytes, self._key_bytes = layer_bytes(model)

    def logprobs(self, sequences: Sequences, targets_BLK: Tensor) -> Tensor:
        """Return log p of the targets, [B, L, K].

        Common prefixes of the sequences, of at most L tokens, are computed once.
        """
        layout = Layout(sequences)
        table = self._rotary.table(self._embed, layout.longest)
        rope = table[layout.positions_N, None].chunk(2, -1)
        x = F.embedding(layout.tokens_N, self._embed)
        x.requires_grad_(torch.is_grad_enabled())
        bytes_of_layer = self._row_bytes * len(x) + self._key_bytes * layout.keys
        first_kept = len(self._layers) - self._budget_bytes // bytes_of_layer
        for index, layer in enumerate(self._layers):
            if index < first_kept:
                x = checkpoint(layer, x, rope, layout, use_reentrant=False)
            else:
                x = layer(x, rope, layout)
        return self._through_head(self._norm(x), layout, targets_BLK)

    def _through_head(self, hidden_NH: Tensor, layout: Layout, targets_BLK: Tensor) -> Tensor:
        """Return log-probabilities [B, L, K], given the final hidden states.

        P is the number of positions of all sequences; several positions share a row where a prefix is shared.
        """
        weight_VH = self._head.effective()
        length = targets_BLK.shape[1]
        places = [np.arange(len(rows)) + i * length for i, rows in enumerate(layout.rows)]
        # Sort positions by row, so that those of a chunk of rows are adjacent.
        rows_P = torch.from_numpy(np.concatenate(layout.rows))
        row_P, order_P = rows_P.sort(stable=True)
        place_P = torch.from_numpy(np.concatenate(places))[order_P]
        targets = targets_BLK.flatten(0, 1)
        fitting = LOGIT_BYTES // (len(weight_VH) * weight_VH.itemsize)
        logp = []
        for start, end in chunks(0, len(hidden_NH), _CHUNK):
            here = slice(*torch.searchsorted(row_P, torch.tensor([start, end])).tolist())
            place = row_P[here] - start, targets[place_P[here]]
            x = hidden_NH[start:end]
            logp.append(_TargetLogprobs.apply(x, self._head, weight_VH, place, end <= fitting))
        logp_BLK = torch.zeros(targets.shape).index_copy(0, place_P, torch.cat(logp))
        return logp_BLK.view(targets_BLK.shape)


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
