"""The base models that the service holds: weights, tokenizer, adapters, limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

from rtl_core.errors import PolicyError
from rtl_core.localtinker.decoder import DenseDecoder
from rtl_core.localtinker.lora import AdapterBank

_MERGE_LIMIT_BYTES = 256 * 1024 * 1024


@dataclass
class ServedModel:
    """One base model: frozen weights, the adapters trained on it, and what requests are checked against."""

    name: str
    path: Path
    model: nn.Module
    tokenizer: PreTrainedTokenizerBase
    adapters: AdapterBank
    eos_ids: frozenset[int]
    vocab_size: int
    max_context: int
    merge: bool

    @property
    def device(self) -> torch.device:
        return self.model.get_input_embeddings().weight.device  # type: ignore[operator]

    def decoder(self, tensors: Mapping[str, torch.Tensor] | None, scaling: float) -> DenseDecoder:
        """What sampling runs on: the base alone, or with a frozen adapter."""
        from rtl_core.localtinker.lora import pairs_by_module

        pairs = {} if tensors is None else pairs_by_module(tensors)
        return DenseDecoder(self.model, pairs, scaling, merge=self.merge)


def load_model(name: str, path: Path, *, dtype: str, device: str, max_context: int) -> ServedModel:
    """Load a transformers causal-LM folder.

    Raises PolicyError naming the folder when transformers cannot load it.
    """
    if not (path / "config.json").is_file():
        raise PolicyError(f"model {name!r}: no config.json in {path}", "give the folder of a transformers model")
    try:
        model = AutoModelForCausalLM.from_pretrained(
            path, dtype=getattr(torch, dtype), attn_implementation="sdpa", local_files_only=True
        )
        tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise PolicyError(f"model {name!r}: transformers cannot load {path}: {error}") from error
    model = model.to(device).eval()
    model.requires_grad_(False)
    nbytes = sum(p.numel() * p.element_size() for p in model.parameters())
    own_limit = getattr(model.config, "max_position_embeddings", None) or max_context
    return ServedModel(
        name=name,
        path=path,
        model=model,
        tokenizer=tokenizer,
        adapters=AdapterBank(model),
        eos_ids=_eos_ids(model, tokenizer),
        vocab_size=model.get_input_embeddings().weight.shape[0],
        max_context=min(max_context, own_limit),
        merge=dtype == "float32" and nbytes <= _MERGE_LIMIT_BYTES,
    )


def _eos_ids(model: nn.Module, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Every id that the generation config, the model config or the tokenizer calls an end of sequence."""
    found: set[int] = set()
    for source in (getattr(model, "generation_config", None), model.config, tokenizer):
        value = getattr(source, "eos_token_id", None)
        if value is not None:
            found.update([value] if isinstance(value, int) else value)
    return frozenset(found)
