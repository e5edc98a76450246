"""Llama, Qwen2 and Qwen3 as torch modules, loaded without transformers, whose import would add half to the
start-up time of a small service.

`decoder.py` and `dense_training.py` take their weights from these modules; training with autograd runs
them. Names, shapes and the order of operations equal those of transformers' modules, so that results are
bitwise equal. transformers reads folders in an unusual form: pickled weights, a configuration with missing
keys, scaled rotary embeddings.

Shapes: B sequences, L positions, H hidden, N query heads, M key-value heads, D head size, V vocabulary.
"""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from localtinker.lora import Tensors

_FAMILIES = ("llama", "qwen2", "qwen3")


class DenseSizes(BaseModel):
    """Sizes of a model, under the names of config.json."""

    model_config = ConfigDict(frozen=True)

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int


class RopeParameters(BaseModel):
    rope_type: Literal["default", "linear", "llama3", "yarn"]
    rope_theta: float


class DenseConfig(DenseSizes):
    """Configuration of a model, under the names of config.json."""

    model_config = ConfigDict(protected_namespaces=())

    model_type: str
    rms_norm_eps: float
    max_position_embeddings: int
    tie_word_embeddings: bool
    eos_token_id: int | list[int] | None
    rope_parameters: RopeParameters
    attention_bias: bool = False
    mlp_bias: bool = False
    hidden_act: Literal["silu"] = "silu"
    layer_types: list[Literal["full_attention"]] | None = None
    use_sliding_window: Literal[False] = False

    @staticmethod
    def read(folder: Path) -> DenseConfig | None:
        """Read a model's folder. None if these modules do not support it: other families, sliding windows,
        quantised weights."""
        raw = json.loads((folder / "config.json").read_text())
        if raw.get("model_type") not in _FAMILIES or "quantization_config" in raw:
            return None
        with suppress(ValidationError):
            return DenseConfig(**raw)
        # A configuration without defaults, as transformers 4 wrote it, or one that is not supported.
        raw = _transformers_config(folder).to_dict()
        per_head = raw["hidden_size"] // raw["num_attention_heads"]
        with suppress(ValidationError):
            return DenseConfig(**{"head_dim": per_head, **raw})
        return None


def _transformers_config(folder: Path) -> Any:
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(folder, local_files_only=True)


class Linear(nn.Linear):
    """Without random initialisation: the weights are loaded."""

    def reset_parameters(self) -> None:
        """Do nothing."""


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight, computed in float32."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self._eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * F.rms_norm(x, self.weight.shape, eps=self._eps)


class Rotary:
    """Cosines and sines of rotary position embeddings."""

    def __init__(self, config: DenseConfig, folder: Path, device: str) -> None:
        rope = config.rope_parameters
        if rope.rope_type == "default":
            evens = torch.arange(0, config.head_dim, 2, dtype=torch.float)
            exponents = evens / config.head_dim
            frequencies = 1.0 / rope.rope_theta**exponents
            self._factor = 1.0
        else:
            from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

            of_type = ROPE_INIT_FUNCTIONS[rope.rope_type]
            frequencies, self._factor = of_type(_transformers_config(folder))
        self._frequencies = frequencies.to(device)

    @torch.no_grad()
    def __call__(self, x: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """Return cosines and sines of the first positions, [length, D] each, in the dtype of x."""
        positions = torch.arange(length, dtype=torch.float, device=x.device)
        angles = torch.outer(positions, self._frequencies).repeat(1, 2)
        cos = angles.cos() * self._factor
        sin = angles.sin() * self._factor
        return cos.to(x.dtype), sin.to(x.dtype)

    def table(self, x: Tensor, length: int) -> Tensor:
        """Return the table of `rotated`: cosines, then signed sines, of the first positions, in the dtype of x,
        [length, 2 D]."""
        cos, sin = self(x, length)
        first, second = sin.chunk(2, -1)
        return torch.cat((cos, -first, second), -1)


def rotated(x: Tensor, cos: Tensor, signed_sin: Tensor) -> Tensor:
    """Apply rotary embeddings from `Rotary.table` to x [..., D]: rotate_half(x) sin = swap_halves(x) (-sin, sin)."""
    swapped = x.roll(x.shape[-1] // 2, -1)
    return torch.addcmul(x * cos, swapped, signed_sin)


class Attention(nn.Module):
    """Causal self-attention over whole sequences."""

    def __init__(self, config: DenseConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        queries = config.num_attention_heads * self.head_dim
        keys = config.num_key_value_heads * self.head_dim
        qwen2 = config.model_type == "qwen2"
        bias = config.attention_bias or qwen2
        self.q_proj = Linear(config.hidden_size, queries, bias=bias)
        self.k_proj = Linear(config.hidden_size, keys, bias=bias)
        self.v_proj = Linear(config.hidden_size, keys, bias=bias)
        self.o_proj = Linear(queries, config.hidden_size, bias=bias and not qwen2)
        if config.model_type == "qwen3":
            self.q_norm, self.k_norm = (
                RMSNorm(self.head_dim, config.rms_norm_eps) for _ in range(2)
            )
        self._grouped = queries != keys

    def forward(self, x_BLH: Tensor, cos_LD: Tensor, sin_LD: Tensor) -> Tensor:
        q, k, v = (
            p(x_BLH).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for p in (self.q_proj, self.k_proj, self.v_proj)
        )
        if hasattr(self, "q_norm"):
            q = self.q_norm(q)
            k = self.k_norm(k)
        q = _rotate(q, cos_LD, sin_LD)
        k = _rotate(k, cos_LD, sin_LD)
        attended = F.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=self._grouped
        )
        return self.o_proj(attended.transpose(1, 2).flatten(2))


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply rotary embeddings with the rounding of transformers."""
    first, second = x.chunk(2, -1)
    half_turned = torch.cat((-second, first), -1)
    return x * cos + half_turned * sin


class MLP(nn.Module):
    def __init__(self, config: DenseConfig) -> None:
        super().__init__()
        hidden = config.hidden_size
        inner = config.intermediate_size
        self.gate_proj, self.up_proj = (
            Linear(hidden, inner, bias=config.mlp_bias) for _ in range(2)
        )
        self.down_proj = Linear(inner, hidden, bias=config.mlp_bias)

    def forward(self, x: Tensor) -> Tensor:
        gate = F.silu(self.gate_proj(x))
        return self.down_proj(gate * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, config: DenseConfig) -> None:
        super().__init__()
        self.self_attn = Attention(config)
        self.mlp = MLP(config)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        h = self.input_layernorm(x)
        x = x + self.self_attn(h, cos, sin)
        h = self.post_attention_layernorm(x)
        return x + self.mlp(h)


class Body(nn.Module):
    """The layers between tokens and final hidden states."""

    def __init__(self, config: DenseConfig, rotary: Rotary) -> None:
        super().__init__()
        weight = torch.empty(config.vocab_size, config.hidden_size)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size, _weight=weight)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.rotary_emb = rotary

    def forward(self, tokens_BL: Tensor) -> Tensor:
        """Return final hidden states [B, L, H] of right-padded sequences. In training mode activations are recomputed
        in the backward pass (gradient checkpointing)."""
        x = self.embed_tokens(tokens_BL)
        cos, sin = self.rotary_emb(x, tokens_BL.shape[1])
        for layer in self.layers:
            run = partial(checkpoint, layer, use_reentrant=False) if self.training else layer
            x = run(x, cos, sin)
        return self.norm(x)


class DenseModel(nn.Module):
    """A causal language model: a body and a head that maps hidden states to logits."""

    def __init__(self, config: DenseConfig, rotary: Rotary) -> None:
        super().__init__()
        self.config = config
        self.model = Body(config, rotary)
        self.lm_head = Linear(config.hidden_size, config.vocab_size, bias=False)
        if config.tie_word_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight

    @property
    def dtype(self) -> torch.dtype:
        return self.lm_head.weight.dtype

    def get_input_embeddings(self) -> nn.Embedding:
        return self.model.embed_tokens

    def get_output_embeddings(self) -> nn.Linear:
        return self.lm_head


def load_dense(folder: Path, dtype: torch.dtype, device: str) -> DenseModel | None:
    """Load the model in a folder, frozen. None if these modules do not support it.

    Raises:
        OSError, ValueError, KeyError, RuntimeError, SafetensorError: files are unreadable or inconsistent.
    """
    config = DenseConfig.read(folder)
    if config is None:
        return None
    rotary = Rotary(config, folder, device)
    model = DenseModel(config, rotary)
    weights = _safetensors(folder)
    if weights.keys() != dict(model.named_parameters()).keys():
        from transformers import AutoModelForCausalLM

        theirs: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, local_files_only=True
        )
        tied = theirs.lm_head.weight is theirs.model.embed_tokens.weight
        config = config.model_copy(update={"tie_word_embeddings": tied})
        model = DenseModel(config, rotary)
        weights = theirs.state_dict()
    for name, parameter in model.named_parameters():
        weight = weights[name]
        if parameter.shape != weight.shape:
            sizes = list(parameter.shape)
            raise ValueError(f"{name} is {list(weight.shape)}, not {sizes}")
        # Copied: memory mapped from a file has an arbitrary alignment, which may change the bits of matrix products.
        parameter.data = weight.to(dtype, copy=True)
    return model.to(device).requires_grad_(False).eval()


def _safetensors(folder: Path) -> Tensors:
    """Return all tensors of a folder, mapped from its files. Empty if the weights are in another format."""
    whole = folder / "model.safetensors"
    index = folder / "model.safetensors.index.json"
    files: set[str] = set()
    if whole.is_file():
        files = {whole.name}
    elif index.is_file():
        contents = json.loads(index.read_text())
        files = set(contents["weight_map"].values())
    tensors: Tensors = {}
    for file in files:
        tensors.update(load_file(folder / file))
    return tensors
