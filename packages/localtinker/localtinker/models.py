"""Base models of the service: weights, tokenizer, adapters, limits."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from localtinker.batching import LockstepDecoder
from localtinker.decoder import DenseDecoder
from localtinker.devices import LARGE_BYTES
from localtinker.errors import ModelError
from localtinker.lora import AdapterBank, LoraSpec, Tensors, pairs_by_module
from localtinker.modules import load_dense
from localtinker.samplers import Sampler
from localtinker.sampling import Vocabulary
from localtinker.settings import context_of

logger = logging.getLogger(__name__)

_LARGE_GPU_BYTES = (
    24 << 30
)  # free GPU memory above which training passes are four times as large
_MERGE_LIMIT_BYTES = 1 << 30  # weights up to which samplers are merged copies of the model
CHECKPOINT_BYTES = (
    2 << 30
)  # weights above which activations are recomputed in the backward pass
Adapter = tuple[Tensors, LoraSpec]
"""Tensors under peft's names, and their configuration."""
_names = itertools.count()


@dataclass
class ServedModel:
    """A base model: frozen weights, its adapters, and the limits for requests.

    `dense`: loaded by `modules.py` and sampled by `decoder.py`, otherwise by transformers. `split_head`:
    body and head can run separately, so that the logits of a long batch need not be in memory at once.
    """

    name: str
    path: Path
    model: Any
    vocabulary: Vocabulary
    adapters: AdapterBank
    eos_ids: frozenset[int]
    vocab_size: int
    max_context: int
    nbytes: int
    dense: bool
    split_head: bool
    recompute: bool  # activations are recomputed in the backward pass

    @property
    def device(self) -> torch.device:
        return self.model.get_input_embeddings().weight.device

    @property
    def small(self) -> bool:
        """Whether one thread samples it as fast as several, so that sampling processes pay off."""
        return self.device.type == "cpu" and self.nbytes < LARGE_BYTES

    @property
    def trains_by_hand(self) -> bool:
        """Whether training uses `dense_training.py`; for a small model, the cost of autograd does not matter."""
        return self.dense and self.device.type == "cpu" and not self.small

    def hidden(self, tokens_BL: Tensor) -> Tensor:
        """Return final hidden states [B, L, H] of right-padded tokens, with the active adapter. Requires
        `split_head`."""
        if self.dense:
            return self.model.model(tokens_BL)
        return self.model.model(input_ids=tokens_BL, use_cache=False).last_hidden_state

    def decoder(self, adapter: Adapter | None) -> DenseDecoder:
        """Return a decoder of a `dense` model, alone or with a frozen adapter."""
        pairs = {} if adapter is None else pairs_by_module(adapter[0])
        scaling = 1.0 if adapter is None else adapter[1].scaling
        merge = self._merges(adapter)
        return DenseDecoder(self.model, pairs, scaling, merge=merge, small=self.small)

    def _merges(self, adapter: Adapter | None) -> bool:
        """Whether a sampler is a merged copy of the weights. Without an adapter, merging only fuses weights, which pays
        off for small models."""
        exact = self.model.dtype == torch.float32
        pays = adapter is not None or self.small
        return exact and pays and self.nbytes <= _MERGE_LIMIT_BYTES

    def sampler_bytes(self, adapter: Adapter | None) -> int:
        """Approximate bytes of a sampler beyond the base: those of a copy if it merges, else of the adapter."""
        if self.dense and self._merges(adapter):
            return self.nbytes
        return sum(tensor.nbytes for tensor in adapter[0].values()) if adapter else 0

    def sampler(self, adapter: Adapter | None, *, deterministic: bool) -> Sampler:
        """Return a sampler of the base model, alone or with a frozen adapter."""
        decoder = self.decoder(adapter) if self.dense else self._lockstep_decoder(adapter)
        return Sampler(decoder, self.vocabulary, deterministic, self.sampler_bytes(adapter))

    def _lockstep_decoder(self, adapter: Adapter | None) -> LockstepDecoder:
        name = None
        if adapter is not None:
            name = f"sampler-{next(_names)}"
            self.adapters.add(name, adapter[1])
            self.adapters.load(name, adapter[0])
        return LockstepDecoder(self.model, self.adapters, name)


def room_on(device: str, models: Iterable[ServedModel]) -> tuple[int, int]:
    """Return limits for a device with the models on it: padded tokens of a training pass, and bytes of
    key-value caches.

    A cache takes twice its bytes while it is rearranged, so on a GPU the limit is 40 % of the free memory.
    On a CPU, larger models train as fast with 512 tokens per pass as with 4096, in a fraction of the
    memory.
    """
    if not device.startswith("cuda"):
        all_small = all(model.small for model in models)
        return 4096 if all_small else 512, 1 << 30
    free, _ = torch.cuda.mem_get_info(torch.device(device))
    tokens = 16384 if free > _LARGE_GPU_BYTES else 4096
    return tokens, int(0.4 * free)


def load_model(
    name: str, path: Path, *, dtype: str, device: str, max_context: int
) -> ServedModel:
    """Load a causal-LM folder with our own modules if they support it, else with transformers.

    Raises ModelError naming the folder when neither can load it.
    """
    try:
        model: Any = load_dense(path, getattr(torch, dtype), device)
        dense = model is not None
        if not dense:
            model = by_transformers(path, dtype, device)
        vocabulary, eos_id = _tokenizer(path, model.config.model_type)
        eos_ids = _eos_ids(path, model, eos_id)
    # Errors of many kinds; `tokenizers` raises a bare Exception for a damaged file.
    except Exception as error:
        raise ModelError(f"model {name!r}: cannot load {path}: {error}") from error
    nbytes = sum(parameter.nbytes for parameter in model.parameters())
    recompute = nbytes > CHECKPOINT_BYTES and (dense or model.supports_gradient_checkpointing)
    if recompute and not dense:
        model.gradient_checkpointing_enable(
            gradient_checkpointing_kwargs={"use_reentrant": False}
        )
    logger.info(
        "model %s: %s, %.1f MB, dense: %s", name, type(model).__name__, nbytes / 1e6, dense
    )
    return ServedModel(
        name=name,
        path=path,
        model=model,
        vocabulary=vocabulary,
        adapters=AdapterBank(model),
        eos_ids=eos_ids,
        vocab_size=model.get_input_embeddings().weight.shape[0],
        max_context=context_of(model.config, max_context),
        nbytes=nbytes,
        dense=dense,
        split_head=dense or _splits_head(model),
        recompute=recompute,
    )


def by_transformers(path: Path, dtype: str, device: str) -> Any:
    """Load a model with transformers, without dropout even in training mode."""
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(
        path, dtype=getattr(torch, dtype), local_files_only=True
    )
    model = model.to(device).eval().requires_grad_(False)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = 0.0
    return model


def _tokenizer(folder: Path, model_type: str) -> tuple[Vocabulary, int | None]:
    """Return the vocabulary and the end token of a folder's tokenizer.

    Without importing transformers if it would use tokenizer.json unchanged: for tokenizer classes without
    their own behaviour, and without added tokens outside that file. (For Qwen2 it uses a special class,
    whatever the folder says.)
    """
    settings = folder / "tokenizer_config.json"
    own = folder / "tokenizer.json"
    config = json.loads(settings.read_text()) if settings.is_file() else {}
    generic = config.get("tokenizer_class") in ("TokenizersBackend", "PreTrainedTokenizerFast")
    differs = config.keys() & {"added_tokens_decoder", "auto_map"}
    cleans = config.get("clean_up_tokenization_spaces")
    usual = generic and not differs and not cleans and model_type != "qwen2"
    end = config.get("eos_token")
    if usual and own.is_file() and isinstance(end, str):
        from tokenizers import Tokenizer

        tokenizer: Any = Tokenizer.from_file(str(own))
        decode = partial(tokenizer.decode, skip_special_tokens=False)
        eos_id = tokenizer.token_to_id(end)
    else:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        decode = tokenizer.decode
        eos_id = tokenizer.eos_token_id
    size = max(tokenizer.get_vocab().values()) + 1
    return Vocabulary(decode, size), eos_id


@torch.inference_mode()
def _splits_head(model: Any) -> bool:
    """Whether a model's body and head, run separately, reproduce its logits on a short probe."""
    body = getattr(model, "model", None)
    head = getattr(model, "lm_head", None)
    if body is None or not callable(head):
        return False
    exact = model.dtype == torch.float32
    # The first ids are special tokens, on which a bfloat16 model is very sensitive to rounding.
    ids = torch.arange(1, 13)
    if not exact:
        ids = 7919 * torch.arange(1, 49)
    size = model.get_input_embeddings().weight.shape[0]
    tokens = ids.to(model.device)[None] % size
    truth = model(input_ids=tokens, use_cache=False).logits.float()
    logits = head(body(input_ids=tokens, use_cache=False).last_hidden_state).float()
    if logits.shape != truth.shape:
        return False
    difference = (logits - truth).abs()
    if exact:
        largest = truth.abs().max()
        return bool(difference.max() <= 1e-4 * largest.clamp(min=1.0))
    # In bfloat16, rounding alone makes single positions differ a lot; a different computation would make
    # all of them differ.
    typical = difference.mean(-1).median()
    spread = truth.std(-1).median()
    return bool(typical <= 0.1 * spread.clamp(min=1.0))


def _eos_ids(path: Path, model: Any, tokenizer_eos: int | None) -> frozenset[int]:
    """Return the end-of-sequence ids of the generation config, the model config and the tokenizer."""
    file = path / "generation_config.json"
    generation = json.loads(file.read_text()) if file.is_file() else {}
    ids: set[int] = set()
    for value in (
        generation.get("eos_token_id"),
        getattr(model.config, "eos_token_id", None),
        tokenizer_eos,
    ):
        ids.update([value] if isinstance(value, int) else value or ())
    return frozenset(ids)
