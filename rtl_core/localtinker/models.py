"""The base models that the service holds: weights, tokenizer, adapters, limits."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from rtl_core.errors import PolicyError
from rtl_core.localtinker.decoder import DenseDecoder, is_small
from rtl_core.localtinker.lockstep import LockstepDecoder
from rtl_core.localtinker.lora import AdapterBank, LoraSpec, pairs_by_module
from rtl_core.localtinker.samplers import DenseSampler, LockstepSampler, Sampler
from rtl_core.localtinker.settings import context_of

logger = logging.getLogger(__name__)

_ROOMY_BYTES = 24 << 30  # free on a GPU, for training passes of four times as many tokens
_MERGE_LIMIT_BYTES = 1 << 30  # merged snapshots copy the model: not for larger ones
CHECKPOINT_BYTES = 2 * 1024**3  # above this, activations are recomputed in the backward pass
_names = itertools.count()


@dataclass
class ServedModel:
    """One base model: frozen weights, the adapters trained on it, and what requests are checked against.

    `dense`: `decoder.py` computes what this model computes. `split_head`: so does running the decoder and the head
    apart, which keeps the logits of long batches out of memory.
    """

    name: str
    path: Path
    model: Any
    tokenizer: Any
    adapters: AdapterBank
    eos_ids: frozenset[int]
    vocab_size: int
    max_context: int
    nbytes: int
    dense: bool
    split_head: bool
    recompute: bool  # activations are recomputed in the backward pass
    fixed_rows: dict[tuple, int] = field(default_factory=dict)  # see DenseSampler

    @property
    def device(self) -> torch.device:
        return self.model.get_input_embeddings().weight.device

    @property
    def merge(self) -> bool:
        """Whether samplers of adapters are copies of the weights with the adapter added."""
        return self.model.dtype == torch.float32 and self.nbytes <= _MERGE_LIMIT_BYTES

    @property
    def small(self) -> bool:
        """Whether one thread samples it as quickly as several, so that several processes sample it best."""
        return is_small(self.nbytes, self.device)

    @property
    def trains_by_hand(self) -> bool:
        """Whether training runs on `dense_training.py`: for a small model, autograd's memory and time do not matter."""
        return self.dense and self.device.type == "cpu" and not self.small

    def decode(self, tokens: Sequence[int]) -> str:
        return self.tokenizer.decode(tokens)

    def decoder(self, adapter: tuple[Mapping[str, Tensor], LoraSpec] | None) -> DenseDecoder:
        """The base alone, or with an adapter's weights as they are; for `dense` models."""
        pairs = {} if adapter is None else pairs_by_module(adapter[0])
        scaling = 1.0 if adapter is None else adapter[1].scaling
        # Without an adapter there is nothing to add, and what fused weights save counts for small models only.
        return DenseDecoder(self.model, pairs, scaling, merge=self.merge and (bool(pairs) or self.small))

    def sampler_bytes(self, *, adapted: bool) -> int:
        """About what a sampler holds beyond the base: a copy where it merges."""
        return self.nbytes if self.dense and self.merge and (adapted or self.small) else 0

    def sampler(self, adapter: tuple[Mapping[str, Tensor], LoraSpec] | None, *, deterministic: bool) -> Sampler:
        """What samples from the base alone, or from a frozen adapter on it."""
        if self.dense:
            return DenseSampler(
                self.decoder(adapter), self.decode, deterministic=deterministic, fixed_rows=self.fixed_rows
            )
        name = None
        if adapter is not None:
            name = f"sampler-{next(_names)}"
            self.adapters.add(name, adapter[1])
            self.adapters.load(name, adapter[0])
        return LockstepSampler(
            LockstepDecoder(self.model, self.adapters, name), self.decode, deterministic=deterministic
        )


@dataclass(frozen=True)
class Room:
    """What one pass of training and the caches of running samples may take."""

    micro_tokens: int
    """Padded tokens of one training pass."""
    cache_bytes: int
    """Key-value caches, while none is being rearranged; then twice as much for a moment."""


def room_on(device: str, models: Iterable[ServedModel]) -> Room:
    """What a device has room for once the models are on it: on a GPU two fifths of what is free go to caches.

    On a CPU larger models train as fast on 512 tokens at a time as on 4096, in a fraction of the memory.
    """
    if not device.startswith("cuda"):
        return Room(4096 if all(model.small for model in models) else 512, 1 << 30)
    free, _ = torch.cuda.mem_get_info(torch.device(device))
    return Room(16384 if free > _ROOMY_BYTES else 4096, int(0.4 * free))


def load_model(name: str, path: Path, *, dtype: str, device: str, max_context: int) -> ServedModel:
    """Load a transformers causal-LM folder.

    Raises PolicyError naming the folder when transformers cannot load it.
    """
    if not (path / "config.json").is_file():
        raise PolicyError(f"model {name!r}: no config.json in {path}", "give the folder of a transformers model")
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, dtype), local_files_only=True)
        tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise PolicyError(f"model {name!r}: transformers cannot load {path}: {error}") from error
    model = model.to(device).eval()
    model.requires_grad_(False)
    _disable_dropout(model)
    nbytes = sum(p.numel() * p.element_size() for p in model.parameters())
    recompute = nbytes > CHECKPOINT_BYTES and model.supports_gradient_checkpointing
    if recompute:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    split_head, dense = _probe(model)
    logger.info("model %s: %s, %.1f MB, dense decoder: %s", name, type(model).__name__, nbytes / 1e6, dense)
    return ServedModel(
        name=name,
        path=path,
        model=model,
        tokenizer=tokenizer,
        adapters=AdapterBank(model),
        eos_ids=_eos_ids(model, tokenizer),
        vocab_size=model.get_input_embeddings().weight.shape[0],
        max_context=context_of(model.config, max_context),
        nbytes=nbytes,
        dense=dense,
        split_head=split_head,
        recompute=recompute,
    )


def _disable_dropout(model: Any) -> None:
    """LoRA training here is without dropout, in whatever mode a model runs."""
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = 0.0


@torch.inference_mode()
def _probe(model: Any) -> tuple[bool, bool]:
    """(split_head, dense): which shortcuts give this model's own logits on a short probe."""
    exact = model.dtype == torch.float32
    # The first ids are special tokens, of which a model in bfloat16 makes something else with every rounding.
    ids = torch.arange(1, 13) if exact else 7919 * torch.arange(1, 49)
    tokens = ids.to(model.device)[None] % model.get_input_embeddings().weight.shape[0]
    truth = model(input_ids=tokens, use_cache=False).logits.float()

    def agrees(logits: Tensor) -> bool:
        if logits.shape != truth.shape:
            return False
        difference = (logits.float() - truth).abs()
        if exact:
            return bool(difference.max() <= 1e-4 * truth.abs().max().clamp(min=1.0))
        # Rounding alone sets single positions of a model in bfloat16 far apart; another computation would set all of them apart.
        return bool(difference.mean(-1).median() <= 0.1 * truth.std(-1).median().clamp(min=1.0))

    split_head = False
    body = getattr(model, "model", None)
    if body is not None and callable(getattr(model, "lm_head", None)):
        split_head = agrees(model.lm_head(body(input_ids=tokens, use_cache=False).last_hidden_state))
    dense = False
    if DenseDecoder.supports(model):
        decoder = DenseDecoder(model, {}, 1.0, merge=False)
        dense = agrees(decoder.logits(decoder.hidden(tokens)[0])[None])
    return split_head, dense


def _eos_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Every id that the generation config, the model config or the tokenizer calls an end of sequence."""
    found: set[int] = set()
    for source in (getattr(model, "generation_config", None), model.config, tokenizer):
        value = getattr(source, "eos_token_id", None)
        if value is not None:
            found.update([value] if isinstance(value, int) else value)
    return frozenset(found)
