"""A lean forward pass for Llama, Qwen2 and Qwen3 models, which sampling and scoring use.

For a small model, the Python overhead of torch modules exceeds the arithmetic. This file computes the same functions as
`modules.py` on the same weights, with a key-value cache whose rows have individual lengths, so that
requests may join and leave a running batch. For other models see `batching.LockstepDecoder`.

Shapes: B rows, L positions, H hidden, N query heads, M key-value heads, D head size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from localtinker.kv_cache import Attend, KVCache
from localtinker.modules import rotated
from localtinker.packing import Layout

PREFILL_TOKENS = 8192  # padded prompt tokens of one forward pass
_CPU_PREFILL_TOKENS = 2048  # on a CPU, more tokens are no faster and take memory
_SMALL_PREFILL_TOKENS = 1024  # for a small model, so that activations stay in a core's cache
Pairs = Mapping[str, tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Linear:
    """y = x W^T + b, plus the low-rank term of an unmerged adapter."""

    weight: Tensor
    bias: Tensor | None = None
    lora: tuple[Tensor, Tensor] | None = None  # A [r, in], scaled B [out, r]

    @cached_property
    def only_weight(self) -> Tensor | None:
        """W^T if there is no bias or adapter: for few rows, the overhead of `F.linear` matters."""
        if self.bias is not None or self.lora is not None:
            return None
        return self.weight.t()

    def __call__(self, x: Tensor) -> Tensor:
        """Return y for x [rows, in]."""
        if self.only_weight is not None:
            return torch.mm(x, self.only_weight)
        y = F.linear(x, self.weight, self.bias)
        if self.lora is not None:
            lora_a, lora_b = self.lora
            inner = F.linear(x.to(lora_a.dtype), lora_a)
            low_rank = F.linear(inner, lora_b)
            y = (y + low_rank).to(y.dtype)
        return y

    def added_to(self, residual: Tensor, x: Tensor) -> Tensor:
        """Return residual + y, [rows, out], in one kernel if there is only a weight."""
        if self.only_weight is not None:
            return torch.addmm(residual, x, self.only_weight)
        return residual + self(x)


@dataclass(frozen=True)
class Layer:
    qkv: list[Linear]  # one fused, or q, k, v
    o: Linear
    gate: Linear
    up: Linear
    down: Linear
    norm_in: Tensor | None  # None: folded into qkv
    norm_mlp: Tensor | None  # None: folded into gate and up
    norm_qk_SD: Tensor | None  # Qwen3's per-head norms, query heads then key heads


class DenseDecoder:
    """The weights of a model, or of a model with an adapter, ready to run.

    With `merge` the adapter is folded into a copy of the weights, which is faster. Without it the base
    tensors are shared and the adapter stays a low-rank term, which saves memory for larger models.
    """

    def __init__(
        self, model: Any, pairs: Pairs, scaling: float, *, merge: bool, small: bool
    ) -> None:
        """`small`: see `ServedModel.small`."""
        config = model.config
        self.heads: int = config.num_attention_heads
        self.kv_heads: int = config.num_key_value_heads
        self.head_dim: int = config.head_dim
        self.eps: float = config.rms_norm_eps
        self._model = model
        self._pairs = pairs
        self._scaling = scaling
        self._merge = merge
        inner = model.model
        self.embed: Tensor = inner.embed_tokens.weight
        self.dtype = self.embed.dtype
        self.device = self.embed.device
        self._exact_norms = self.dtype == torch.float32
        self._floors: dict[int, Tensor] = {}
        for size in (self.head_dim, self.embed.shape[1]):
            floor = (size * self.eps) ** 0.5
            self._floors[size] = torch.tensor(floor, device=self.device)
        self.norm: Tensor = self._norm_weight(inner.norm.weight)
        self.head = self._linear("lm_head")
        count = len(inner.layers)
        self.layers = [self._layer(f"model.layers.{number}") for number in range(count)]
        self._rotary = inner.rotary_emb
        self._cos_sin = self._rotary.table(self.embed, 256)
        self.vocab_size: int = self.head.weight.shape[0]
        numbers = 2 * count * self.kv_heads * self.head_dim
        self.position_bytes: int = numbers * self.dtype.itemsize
        self.is_small = small
        on_cpu = _SMALL_PREFILL_TOKENS if self.is_small else _CPU_PREFILL_TOKENS
        self.prefill_tokens = on_cpu if self.device.type == "cpu" else PREFILL_TOKENS

    def release(self) -> None:
        """Do nothing: the tensors are freed with this object."""

    def new_cache(self, slots: int, capacity: int) -> KVCache:
        """Return an empty cache for this model."""
        shape = (slots, self.kv_heads, capacity, self.head_dim)
        return KVCache(len(self.layers), shape, self.dtype, self.device)

    def hidden(self, tokens_BL: Tensor, cache: KVCache | None = None) -> Tensor:
        """Return final hidden states [B, L, H] of right-padded sequences, and write positions 0..L-1 of `cache`."""
        length = tokens_BL.shape[1]

        def attend(index: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            q, k, v = (states.transpose(1, 2) for states in (q, k, v))
            if cache is not None:
                keys, values = cache.layers[index]
                keys[:, :, :length] = k
                values[:, :, :length] = v
            attended = F.scaled_dot_product_attention(
                q, k, v, is_causal=True, enable_gqa=self.heads != self.kv_heads
            )
            return attended.transpose(1, 2).flatten(2)

        rope = self._rope(length)[:length, None]
        return self._through_layers(tokens_BL, rope, attend)

    def packed_hidden(self, layout: Layout) -> Tensor:
        """Return final hidden states [N, H] of the rows of a layout."""
        tokens_N = layout.tokens_N.to(self.device)
        positions_N = layout.positions_N.to(self.device)
        rope = self._rope(layout.longest)[positions_N, None]

        def attend(index: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return layout.attention(q, k, v)

        return self._through_layers(tokens_N, rope, attend)

    def _through_layers(self, tokens: Tensor, rope: Tensor, attend: Attend) -> Tensor:
        """Return final hidden states [*lead, H] of tokens [*lead]; `rope` broadcasts to [*lead, 1, 2 D]."""
        cos, sin = rope.chunk(2, -1)
        x = F.embedding(tokens.flatten(), self.embed)
        for index, layer in enumerate(self.layers):
            qk, v = self._project(layer, x, tokens.shape, cos, sin)
            q, k = qk.split_with_sizes((self.heads, self.kv_heads), -2)
            attended = attend(index, q, k, v)
            attended = attended.view(len(x), -1)
            x = self._finish(layer, x, attended)
        x = self._rms(x, self.norm)
        return x.view(*tokens.shape, -1)

    def step(self, tokens_B: Tensor, positions_B: Tensor, cache: KVCache) -> Tensor:
        """Return logits [B, V] of one new token per slot: row b writes position `positions_B[b]` and sees
        all up to it."""
        length = int(positions_B.max()) + 1
        rope = self._rope(length).index_select(0, positions_B)[:, None]
        attend = cache.attention(positions_B, length)
        return self.logits(self._through_layers(tokens_B, rope, attend))

    def logits(self, hidden: Tensor) -> Tensor:
        """Return float32 logits of hidden states [rows, H]."""
        return self.head(hidden).float()

    def _project(
        self, layer: Layer, x: Tensor, lead: tuple[int, ...], cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return rotated queries followed by keys [*lead, N + M, D], and values [*lead, M, D], for x [rows, H]."""
        h = self._rms(x, layer.norm_in)
        states = [linear(h) for linear in layer.qkv]
        qkv = states[0]
        if len(states) > 1:
            qkv = torch.cat(states, -1)
        heads = self.heads + self.kv_heads
        qkv = qkv.view(*lead, heads + self.kv_heads, self.head_dim)
        qk, v = qkv.split_with_sizes((heads, self.kv_heads), -2)
        if layer.norm_qk_SD is not None:
            qk = self._rms(qk, layer.norm_qk_SD)
        return rotated(qk, cos, sin), v

    def _finish(self, layer: Layer, x: Tensor, attended: Tensor) -> Tensor:
        x = layer.o.added_to(x, attended)
        h = self._rms(x, layer.norm_mlp)
        gate = F.silu(layer.gate(h))
        up = layer.up(h)
        return layer.down.added_to(x, gate.mul_(up))

    def _rms(self, x: Tensor, weight: Tensor | None) -> Tensor:
        """Return x / sqrt(mean(x^2) + eps) * weight, with half as many CPU kernels as torch.

        In float32 it is x / hypot(|x|, sqrt(n eps)), and `_norm_weight` has multiplied the weight by sqrt(n).
        """
        if self._exact_norms:
            length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
            floor = self._floors[x.shape[-1]]
            x = x / torch.hypot(length, floor)
        else:  # lower precisions have too few bits for the sum of squares
            x = F.rms_norm(x, (x.shape[-1],), None, self.eps)
        return x if weight is None else x * weight

    def _norm_weight(self, weight: Tensor) -> Tensor:
        weight = weight.detach()
        if not self._exact_norms:
            return weight
        return weight * weight.shape[-1] ** 0.5

    def _rope(self, length: int) -> Tensor:
        """Return the table of `Rotary.table` for at least `length` positions."""
        if length > self._cos_sin.shape[0]:
            self._cos_sin = self._rotary.table(self.embed, 2 * length)
        return self._cos_sin

    def _layer(self, name: str) -> Layer:
        module = self._model.get_submodule(name)
        names = [f"{name}.self_attn.{part}_proj" for part in "qkvo"]
        q, k, v, o = map(self._linear, names)
        gate, up, down = (
            self._linear(f"{name}.mlp.{part}_proj") for part in ("gate", "up", "down")
        )
        qkv = [q, k, v]
        norm_in = self._norm_weight(module.input_layernorm.weight)
        norm_mlp = self._norm_weight(module.post_attention_layernorm.weight)
        norms: tuple[Tensor | None, Tensor | None] = (norm_in, norm_mlp)
        if self._merge:
            qkv = [_fuse(qkv, norm_in)]
            gate = _fuse([gate], norm_mlp)
            up = _fuse([up], norm_mlp)
            norms = (None, None)
        norm_qk = None
        if hasattr(module.self_attn, "q_norm"):
            norm_q = module.self_attn.q_norm.weight.expand(self.heads, -1)
            norm_k = module.self_attn.k_norm.weight.expand(self.kv_heads, -1)
            weights = torch.cat([norm_q, norm_k])
            norm_qk = self._norm_weight(weights).contiguous()
        return Layer(qkv, o, gate, up, down, *norms, norm_qk)

    def _linear(self, name: str) -> Linear:
        module = self._model.get_submodule(name)
        weight = module.weight.detach()
        bias = None if module.bias is None else module.bias.detach()
        pair = self._pairs.get(name)
        if pair is None:
            return Linear(weight, bias)
        lora_a, lora_b = (t.to(self.device, torch.float32) for t in pair)
        if self._merge:
            product = torch.addmm(weight.float(), lora_b, lora_a, alpha=self._scaling)
            return Linear(product.to(weight.dtype), bias)
        return Linear(weight, bias, (lora_a, lora_b * self._scaling))


def _fuse(linears: list[Linear], norm: Tensor) -> Linear:
    """Fuse linear layers with the same input into one, and fold the weight of the preceding norm into it."""
    weight = torch.cat([linear.weight for linear in linears]).mul_(norm)
    biases = [linear.bias for linear in linears if linear.bias is not None]
    return Linear(weight, torch.cat(biases) if biases else None)
