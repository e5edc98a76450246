"""The base models that the service holds: weights, tokenizer, adapters, limits."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from rtl_core.errors import PolicyError
from rtl_core.localtinker.decoder import DenseDecoder, is_small
from rtl_core.localtinker.lockstep import LockstepDecoder
from rtl_core.localtinker.lora import AdapterBank, LoraSpec, pairs_by_module
from rtl_core.localtinker.modules import load_dense
from rtl_core.localtinker.samplers import Sampler
from rtl_core.localtinker.sampling import Vocabulary
from rtl_core.localtinker.settings import context_of

logger = logging.getLogger(__name__)

_ROOMY_BYTES = 24 << 30  # free on a GPU, for training passes of four times as many tokens
_MERGE_LIMIT_BYTES = 1 << 30  # merged snapshots copy the model: not for larger ones
CHECKPOINT_BYTES = 2 * 1024**3  # above this, activations are recomputed in the backward pass
_names = itertools.count()


@dataclass
class ServedModel:
    """One base model: frozen weights, the adapters trained on it, and what requests are checked against.

    `dense`: `modules.py` made it, and `decoder.py` samples from it; otherwise it is transformers'. `split_head`: its logits are those
    of its body and its head run apart, which keeps the logits of long batches out of memory.
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

    def hidden(self, tokens_BL: Tensor) -> Tensor:
        """Final hidden states [B, L, H] of right-padded tokens, with the active adapter; where `split_head` holds."""
        if self.dense:
            return self.model.model(tokens_BL)
        return self.model.model(input_ids=tokens_BL, use_cache=False).last_hidden_state

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
            return Sampler(self.decoder(adapter), self.vocabulary, deterministic)
        name = None
        if adapter is not None:
            name = f"sampler-{next(_names)}"
            self.adapters.add(name, adapter[1])
            self.adapters.load(name, adapter[0])
        return Sampler(LockstepDecoder(self.model, self.adapters, name), self.vocabulary, deterministic)


def room_on(device: str, models: Iterable[ServedModel]) -> tuple[int, int]:
    """What a device has room for once the models are on it: padded tokens of one training pass, and bytes of the key-value caches of
    running samples (for a moment, while one is rearranged, twice as many): on a GPU two fifths of what is free.

    On a CPU larger models train as fast on 512 tokens at a time as on 4096, in a fraction of the memory.
    """
    if not device.startswith("cuda"):
        return 4096 if all(model.small for model in models) else 512, 1 << 30
    free, _ = torch.cuda.mem_get_info(torch.device(device))
    return 16384 if free > _ROOMY_BYTES else 4096, int(0.4 * free)


def load_model(name: str, path: Path, *, dtype: str, device: str, max_context: int) -> ServedModel:
    """Load a causal-LM folder: by our own modules where they compute it, else by transformers.

    Raises PolicyError naming the folder when neither can load it.
    """
    try:
        model: Any = load_dense(path, getattr(torch, dtype), device)
        dense = model is not None
        if not dense:
            model = _by_transformers(path, dtype, device)
        vocabulary, eos_id = _tokenizer(path, model.config.model_type)
    except (OSError, ValueError, KeyError, ImportError, RuntimeError, SafetensorError) as error:
        raise PolicyError(f"model {name!r}: cannot load {path}: {error}") from error
    nbytes = sum(p.numel() * p.element_size() for p in model.parameters())
    recompute = nbytes > CHECKPOINT_BYTES and (dense or model.supports_gradient_checkpointing)
    if recompute and dense:
        model.model.recompute = True
    elif recompute:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    logger.info("model %s: %s, %.1f MB, dense: %s", name, type(model).__name__, nbytes / 1e6, dense)
    return ServedModel(
        name=name,
        path=path,
        model=model,
        vocabulary=vocabulary,
        adapters=AdapterBank(model),
        eos_ids=_eos_ids(path, model, eos_id),
        vocab_size=model.get_input_embeddings().weight.shape[0],
        max_context=context_of(model.config, max_context),
        nbytes=nbytes,
        dense=dense,
        split_head=dense or _splits_head(model),
        recompute=recompute,
    )


def _by_transformers(path: Path, dtype: str, device: str) -> Any:
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, dtype), local_files_only=True)
    model = model.to(device).eval()
    model.requires_grad_(False)
    _disable_dropout(model)
    return model


def _tokenizer(folder: Path, model_type: str) -> tuple[Vocabulary, int | None]:
    """What the folder's tokenizer knows, and the end token, without transformers where it would say the same.

    That is so where transformers takes tokenizer.json as it is: for classes without a way of their own, with no tokens added beside that
    file. (To a Qwen2 it gives a class of its own, whatever the folder says.)
    """
    named, own = folder / "tokenizer_config.json", folder / "tokenizer.json"
    config = json.loads(named.read_text()) if named.is_file() else {}
    as_it_is = config.get("tokenizer_class") in ("TokenizersBackend", "PreTrainedTokenizerFast")
    changed = config.keys() & {"added_tokens_decoder", "auto_map"} or config.get("clean_up_tokenization_spaces")
    end = config.get("eos_token")
    if as_it_is and not changed and model_type != "qwen2" and own.is_file() and isinstance(end, str):
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(own))
        decode = partial(tokenizer.decode, skip_special_tokens=False)
        return Vocabulary(decode, max(tokenizer.get_vocab().values()) + 1), tokenizer.token_to_id(end)
    from transformers import AutoTokenizer

    theirs: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    return Vocabulary(theirs.decode, max(theirs.get_vocab().values()) + 1), theirs.eos_token_id


def _disable_dropout(model: Any) -> None:
    """LoRA training here is without dropout, in whatever mode a model runs."""
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = 0.0


@torch.inference_mode()
def _splits_head(model: Any) -> bool:
    """Whether a model's body and head, run apart, give its own logits on a short probe."""
    body, head = getattr(model, "model", None), getattr(model, "lm_head", None)
    if body is None or not callable(head):
        return False
    exact = model.dtype == torch.float32
    # The first ids are special tokens, of which a model in bfloat16 makes something else with every rounding.
    ids = torch.arange(1, 13) if exact else 7919 * torch.arange(1, 49)
    tokens = ids.to(model.device)[None] % model.get_input_embeddings().weight.shape[0]
    truth = model(input_ids=tokens, use_cache=False).logits.float()
    logits = head(body(input_ids=tokens, use_cache=False).last_hidden_state).float()
    if logits.shape != truth.shape:
        return False
    difference = (logits - truth).abs()
    if exact:
        return bool(difference.max() <= 1e-4 * truth.abs().max().clamp(min=1.0))
    # Rounding alone sets single positions of a model in bfloat16 far apart; another computation would set all of them apart.
    return bool(difference.mean(-1).median() <= 0.1 * truth.std(-1).median().clamp(min=1.0))


def _eos_ids(path: Path, model: Any, of_tokenizer: int | None) -> frozenset[int]:
    """Every id that the generation config, the model config or the tokenizer calls an end of sequence."""
    file = path / "generation_config.json"
    named = [json.loads(file.read_text()).get("eos_token_id") if file.is_file() else None, of_tokenizer]
    named += [
        getattr(source, "eos_token_id", None) for source in (model.config, getattr(model, "generation_config", None))
    ]
    return frozenset(itertools.chain.from_iterable([ids] if isinstance(ids, int) else ids or () for ids in named))
