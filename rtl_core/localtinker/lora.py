"""LoRA adapters on a shared, frozen base model, through peft.

An adapter belongs to one training client; several live on one base at once and only the active one computes and
collects gradients. Scaling is alpha / rank with alpha = 32 for every rank, as Tinker fixes it. A is drawn uniformly
(Kaiming, a = sqrt 5) from a generator of the client's seed, B is zero, so that a fresh adapter changes nothing.
On disk an adapter is an ordinary peft folder: `PeftModel.from_pretrained(base, folder)` loads it elsewhere.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

LORA_ALPHA = 32
MAX_RANK = 512
_PREFIX = "base_model.model."


@dataclass(frozen=True)
class LoraSpec:
    """What a client asked for: rank, seed of the initialisation, and which kinds of layers get an adapter."""

    rank: int
    seed: int
    train_attn: bool = True
    train_mlp: bool = True
    train_unembed: bool = True

    @property
    def scaling(self) -> float:
        return LORA_ALPHA / self.rank

    def in_words(self) -> str:
        parts = [part for part in ("attn", "mlp", "unembed") if getattr(self, f"train_{part}")]
        return f"rank {self.rank} on {'+'.join(parts)}"

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> LoraSpec:
        return LoraSpec(**json.loads(text))


def target_modules(model: Any, spec: LoraSpec) -> list[str]:
    """Full names of the linear layers that get an adapter, in module order.

    Attention and MLP layers are told apart by the name of the block that holds them (`self_attn`, `mlp`, ...). Experts
    that transformers stores as one fused parameter are no linear layers and stay frozen.
    """
    head = model.get_output_embeddings()
    names = []
    for name, module in model.named_modules():
        if name.endswith(".base_layer") or ".lora_" in name:
            continue
        base = getattr(module, "base_layer", module)
        if not isinstance(base, nn.Linear):
            continue
        if base is getattr(head, "base_layer", head):
            wanted = spec.train_unembed
        elif "attn" in name or "attention" in name:
            wanted = spec.train_attn
        else:
            wanted = spec.train_mlp and any(part in name for part in ("mlp", "feed_forward", "ffn", "expert"))
        if wanted:
            names.append(name)
    return names


class AdapterBank:
    """All adapters of one base model.

    `model` is the transformers model itself; peft replaces its linear layers in place when the first adapter comes.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self._peft: Any = None  # a PeftModel while there is an adapter
        self._targets: dict[str, list[str]] = {}
        self._specs: dict[str, LoraSpec] = {}
        self._active: tuple[str | None] | None = None  # (name,) once it is known what computes

    def add(self, name: str, spec: LoraSpec) -> None:
        """Create adapter `name`, freshly initialised from `spec.seed`."""
        targets = target_modules(self.model, spec)
        config = LoraConfig(
            r=spec.rank,
            lora_alpha=LORA_ALPHA,
            lora_dropout=0.0,
            bias="none",
            target_modules=targets,
            task_type="CAUSAL_LM",
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # peft warns about tied heads, which only matters when merging in place
            if self._peft is None:
                self._peft = get_peft_model(self.model, config, adapter_name=name)
            else:
                self._peft.add_adapter(name, config)
        self._targets[name], self._specs[name] = targets, spec
        generator = torch.Generator().manual_seed(spec.seed)
        for target in targets:
            lora_a = self._layer(target).lora_A[name].weight
            fresh = torch.empty(lora_a.shape, dtype=torch.float32)
            nn.init.kaiming_uniform_(fresh, a=math.sqrt(5), generator=generator)
            lora_a.data.copy_(fresh)
        self._active = None

    def activate(self, name: str | None) -> None:
        """Make `name` the only adapter that computes and trains; None leaves the base alone."""
        if self._peft is None or self._active == (name,):
            return
        if name is None:
            self._peft.base_model.disable_adapter_layers()
        else:
            self._peft.base_model.enable_adapter_layers()
            self._peft.set_adapter(name)
        self._active = (name,)

    def remove(self, name: str) -> None:
        assert self._peft is not None
        if len(self._targets) == 1:
            # peft will not delete the last adapter of a model cleanly; unload gives the plain layers back.
            self._peft.base_model.unload()
            self._peft = None
        else:
            self._peft.delete_adapter(name)
        del self._targets[name], self._specs[name]
        self._active = None

    def parameters(self, name: str) -> list[nn.Parameter]:
        """The trainable parameters of one adapter, in a fixed order (A then B, module by module)."""
        return [p for pair in self.pairs(name).values() for p in pair]

    def tensors(self, name: str) -> dict[str, Tensor]:
        """Detached copies of the weights under peft's names, on the CPU."""
        flat = {}
        for target, (lora_a, lora_b) in self.pairs(name).items():
            flat[f"{_PREFIX}{target}.lora_A.weight"] = lora_a.detach().cpu().clone()
            flat[f"{_PREFIX}{target}.lora_B.weight"] = lora_b.detach().cpu().clone()
        return flat

    def load(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        """Overwrite the weights of `name`. Raises KeyError when a tensor is missing, RuntimeError on a wrong shape."""
        with torch.no_grad():
            for target, (lora_a, lora_b) in self.pairs(name).items():
                lora_a.copy_(tensors[f"{_PREFIX}{target}.lora_A.weight"])
                lora_b.copy_(tensors[f"{_PREFIX}{target}.lora_B.weight"])

    def pairs(self, name: str) -> dict[str, tuple[nn.Parameter, nn.Parameter]]:
        """The trainable (A, B) of one adapter by the name of the module that they belong to."""
        layers = {target: self._layer(target) for target in self._targets[name]}
        return {t: (layer.lora_A[name].weight, layer.lora_B[name].weight) for t, layer in layers.items()}

    def _layer(self, target: str) -> Any:
        return self.model.get_submodule(target)


def pairs_by_module(tensors: Mapping[str, Tensor]) -> dict[str, tuple[Tensor, Tensor]]:
    """{module name: (A [r, in], B [out, r])} from tensors under peft's names."""
    suffix = ".lora_A.weight"
    return {
        key[len(_PREFIX) : -len(suffix)]: (value, tensors[key[: -len(suffix)] + ".lora_B.weight"])
        for key, value in tensors.items()
        if key.endswith(suffix)
    }


def write_adapter(folder: Path, tensors: Mapping[str, Tensor], spec: LoraSpec, base_path: str) -> None:
    """Write a peft folder: adapter_model.safetensors and adapter_config.json."""
    save_file(dict(tensors), folder / "adapter_model.safetensors")
    config = LoraConfig(
        r=spec.rank,
        lora_alpha=LORA_ALPHA,
        lora_dropout=0.0,
        bias="none",
        target_modules=sorted(pairs_by_module(tensors)),
        task_type="CAUSAL_LM",
        base_model_name_or_path=base_path,
        inference_mode=True,
    )
    config.save_pretrained(str(folder))


def read_adapter(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "adapter_model.safetensors")
