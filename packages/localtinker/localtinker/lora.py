"""LoRA adapters on a shared, frozen base model: y = W x + s B A x.

Each adapter belongs to a training client. Several share a base, and only the active one computes and
collects gradients. The scaling s is alpha / rank, with alpha = 32 for every rank as in Tinker. A is uniform
(Kaiming, a = sqrt 5) from the client's seed; B is zero, so that a fresh adapter changes nothing. On disk an
adapter is a peft folder, which `PeftModel.from_pretrained(base, folder)` loads. peft itself is not used
here because its import takes three times as long as torch's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field
from safetensors.torch import load, save_file
from torch import Tensor, nn

LORA_ALPHA = 32
MAX_RANK = 512
_LARGEST_SEED = 2**63 - 1
PREFIX = "base_model.model."
_MLP_NAMES = ("mlp", "feed_forward", "ffn", "expert")


class LoraSpec(BaseModel):
    """Configuration of an adapter: rank, seed of the initialisation (None: a random one), and the kinds of layers with
    an adapter."""

    model_config = ConfigDict(frozen=True)

    rank: int = Field(ge=1, le=MAX_RANK)
    seed: int | None = None
    train_attn: bool = True
    train_mlp: bool = True
    train_unembed: bool = True

    @property
    def scaling(self) -> float:
        return LORA_ALPHA / self.rank

    def describe(self) -> str:
        parts = [part for part in ("attn", "mlp", "unembed") if getattr(self, f"train_{part}")]
        return f"rank {self.rank} on {'+'.join(parts)}"


def target_modules(model: Any, spec: LoraSpec) -> list[str]:
    """Return full names of the linear layers that get an adapter, in module order.

    Attention and MLP layers are recognised by the name of their block (`self_attn`, `mlp`, ...). Experts
    that transformers stores as one fused parameter are not linear layers and stay frozen.
    """
    head = model.get_output_embeddings()

    def is_target(name: str, module: nn.Module) -> bool:
        if module is head:
            return spec.train_unembed
        if "attn" in name or "attention" in name:
            return spec.train_attn
        return spec.train_mlp and any(part in name for part in _MLP_NAMES)

    return [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and is_target(name, module)
    ]


Pair = tuple[nn.Parameter, nn.Parameter]
"""A [r, in] and B [out, r] of an adapter."""
Pairs = dict[str, Pair]
Tensors = dict[str, Tensor]
"""Name -> tensor, such as the weights of an adapter under peft's names."""


class AdapterBank:
    """All adapters of a base model. The active adapter is attached by forward hooks; the modules are not changed."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self._adapters: dict[str, tuple[LoraSpec, Pairs]] = {}
        self._active: str | None = None
        self._hooks: list[Any] = []  # handles of the active adapter's hooks

    def add(self, name: str, spec: LoraSpec) -> None:
        """Create adapter `name` in float32, initialised from `spec.seed`. It has no effect before `activate`."""
        generator = torch.Generator()
        if spec.seed is None:
            generator.seed()
        else:
            generator.manual_seed(spec.seed & _LARGEST_SEED)
        pairs: Pairs = {}
        for target in target_modules(self.model, spec):
            weight = self.model.get_submodule(target).weight
            lora_a = torch.empty(spec.rank, weight.shape[1])
            nn.init.kaiming_uniform_(lora_a, a=math.sqrt(5), generator=generator)
            lora_b = torch.zeros(weight.shape[0], spec.rank)
            pairs[target] = (
                nn.Parameter(lora_a.to(weight.device)),
                nn.Parameter(lora_b.to(weight.device)),
            )
        self._adapters[name] = spec, pairs

    def activate(self, name: str | None) -> None:
        """Make `name` the only active adapter. None: the base model alone."""
        if name == self._active:
            return
        while self._hooks:
            self._hooks.pop().remove()
        if name is not None:
            spec, pairs = self._adapters[name]
            for target, pair in pairs.items():
                hook = _low_rank_term(*pair, spec.scaling)
                module = self.model.get_submodule(target)
                self._hooks.append(module.register_forward_hook(hook))
        self._active = name

    def remove(self, name: str) -> None:
        if name == self._active:
            self.activate(None)
        del self._adapters[name]

    def parameters(self, name: str) -> list[nn.Parameter]:
        """Return the trainable parameters of an adapter in a fixed order (A then B, module by module)."""
        return [p for pair in self.pairs(name).values() for p in pair]

    def tensors(self, name: str) -> Tensors:
        """Return CPU copies of the weights under peft's names."""
        flat = {}
        for target, (lora_a, lora_b) in self.pairs(name).items():
            for part, tensor in (("A", lora_a), ("B", lora_b)):
                copy = tensor.detach().cpu().clone()
                flat[f"{PREFIX}{target}.lora_{part}.weight"] = copy
        return flat

    def load(self, name: str, tensors: Tensors) -> None:
        """Overwrite the weights of `name`. Raises KeyError if a tensor is missing, RuntimeError if a shape is wrong."""
        saved = pairs_by_module(tensors)
        with torch.no_grad():
            for target, (lora_a, lora_b) in self.pairs(name).items():
                saved_a, saved_b = saved[target]
                lora_a.copy_(saved_a)
                lora_b.copy_(saved_b)

    def pairs(self, name: str) -> Pairs:
        """Return a mapping of module name to the trainable (A [r, in], B [out, r]) of an adapter."""
        return self._adapters[name][1]


def _low_rank_term(
    lora_a: Tensor, lora_b: Tensor, scaling: float
) -> Callable[[nn.Module, tuple, Tensor], Tensor]:
    """Return a forward hook that adds s B A x, computed in float32, to the output of a linear layer."""

    def add(module: nn.Module, inputs: tuple, output: Tensor) -> Tensor:
        x = inputs[0].to(lora_a.dtype)
        low_rank = F.linear(F.linear(x, lora_a), lora_b)
        return (output + low_rank * scaling).to(output.dtype)

    return add


def pairs_by_module(tensors: Tensors) -> dict[str, tuple[Tensor, Tensor]]:
    """Return a mapping of module name to (A [r, in], B [out, r]) from tensors under peft's names."""
    pairs = {}
    for key, lora_a in tensors.items():
        name, suffix, _ = key.partition(".lora_A.weight")
        if suffix:
            lora_b = tensors[f"{name}.lora_B.weight"]
            pairs[name.removeprefix(PREFIX)] = lora_a, lora_b
    return pairs


def write_adapter(folder: Path, tensors: Tensors, spec: LoraSpec, base_path: str) -> None:
    """Write a peft folder: adapter_model.safetensors and adapter_config.json."""
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_path,
        "r": spec.rank,
        "lora_alpha": LORA_ALPHA,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": sorted(pairs_by_module(tensors)),
        "inference_mode": True,
    }
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2))


def read_adapter(folder: Path) -> Tensors:
    return read_tensors(folder / "adapter_model.safetensors")


def read_tensors(file: Path) -> Tensors:
    """Read all tensors of a safetensors file into torch's memory.

    Not `load_file`, which leaks two objects (60 bytes) per tensor in safetensors 0.8.0.
    """
    tensors = load(file.read_bytes())
    return {name: tensor.clone() for name, tensor in tensors.items()}
