"""Batches of rows: continuous batches for dense models, and lockstep batches for all others.

Rows join a continuous batch when their prompt is prefilled and leave it when they stop. In a lockstep
batch, rows of equal prompt length advance together on transformers' own forward pass and cache. Without
padding or masks, hybrid and recurrent layers, sliding windows and mixtures of experts run exactly as
transformers implements them, but slower.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from localtinker.decoder import PREFILL_TOKENS, DenseDecoder
from localtinker.kv_cache import KVCache, round_up
from localtinker.lora import AdapterBank
from localtinker.packing import Layout, packed_passes, padded, padded_passes
from localtinker.sampling import (
    Batch,
    Row,
    note_shared,
    requests_of,
    tensor_of,
)
from localtinker.scoring import Unscored, score_prompts

PromptTokens = tuple[int, ...]
_DEAD_SHARE = 0.15  # share of stopped slots above which the cache is compacted


class GenerationBatch(Batch):
    """A batch that rows may join at any time. Every slot has its own length, so that no sequence is padded.

    Prompts that are scored, with at most one sampled token, share the computation of common prefixes.
    """

    decoder: DenseDecoder
    _cache: KVCache | None

    @torch.inference_mode()
    def admit(self, rows: Sequence[Row]) -> None:
        note_shared(rows)
        by_prompt: dict[PromptTokens, list[Row]] = {}
        for row in rows:
            by_prompt.setdefault(tuple(row.request.prompt), []).append(row)
        budget = self.decoder.prefill_tokens
        shared: list[PromptTokens] = []
        apart: list[PromptTokens] = []
        for prompt, group in by_prompt.items():
            # For a small model sharing prefixes costs more than it saves.
            caches = any(row.request.needs_cache for row in group)
            alone = self.decoder.is_small or caches
            (apart if alone else shared).append(prompt)
        for numbers in packed_passes(shared, budget):
            layout = Layout([shared[i] for i in numbers])
            groups = [by_prompt[shared[i]] for i in numbers]
            self._first_tokens(self.decoder.packed_hidden(layout), layout.rows, groups)
        for numbers in padded_passes(apart, budget):
            prompts = [apart[i] for i in numbers]
            self._prefill(prompts, [by_prompt[prompt] for prompt in prompts])

    def _prefill(self, prompts: Sequence[PromptTokens], groups: Sequence[list[Row]]) -> None:
        device = self.decoder.device
        lengths = [len(prompt) for prompt in prompts]
        cache: KVCache | None = None
        if any(row.request.needs_cache for group in groups for row in group):
            capacity = round_up(max(lengths) + 1)
            cache = self.decoder.new_cache(len(prompts), capacity)
        tokens_BL = padded(prompts)
        hidden_BLH = self.decoder.hidden(tokens_BL.to(device), cache)
        positions_BL = np.arange(tokens_BL.numel()).reshape(tokens_BL.shape)
        positions = [row[:length] for row, length in zip(positions_BL, lengths, strict=True)]
        self._first_tokens(hidden_BLH.flatten(0, 1), positions, groups)
        live = [(i, row) for i, group in enumerate(groups) for row in group if not row.done]
        if not live or cache is None:
            return
        slots, rows = zip(*live, strict=True)
        cache.select(torch.tensor(slots, device=device))
        self._compact()
        if self._cache is None:
            self._cache = cache
        else:
            self._cache.append(cache)
        self.rows += rows

    def _first_tokens(
        self, hidden_NH: Tensor, positions: Sequence[np.ndarray], groups: Sequence[list[Row]]
    ) -> None:
        """Score the prompts and sample their rows' first tokens. `positions[i]` are the rows of `hidden_NH`
        with prompt i."""
        rows: list[Row] = []
        last: list[int] = []
        unscored: list[Unscored] = []
        for rows_P, group in zip(positions, groups, strict=True):
            rows += group
            last += [rows_P[-1]] * len(group)
            for request in requests_of(group):
                if request.needs_scores:
                    unscored.append((request, rows_P))
        score_prompts(self.decoder, hidden_NH, unscored)
        distinct, owner = np.unique(last, return_inverse=True)
        device = hidden_NH.device
        last_UH = hidden_NH[torch.from_numpy(distinct).to(device)]
        owner_B = torch.from_numpy(owner).to(device)
        logits_UV = self.decoder.logits(last_UH)
        self._take(logits_UV.index_select(0, owner_B), rows)

    @torch.inference_mode()
    def step(self) -> None:
        self._stop_cancelled()
        count = len(self.rows)
        if count - self.live > _DEAD_SHARE * count:
            self._compact()
        if not self.rows:
            return
        assert self._cache is not None
        device = self.decoder.device
        tokens_B = tensor_of(self.last_tokens(), np.int64, device)
        lengths = [len(row.request.prompt) + len(row.tokens) for row in self.rows]
        positions_B = tensor_of(lengths, np.int64, device) - 1
        logits_BV = self.decoder.step(tokens_B, positions_B, self._cache)
        # Sampling for the few stopped rows as well is cheaper than selecting the logits of the others.
        self._take(logits_BV, self.rows)

    def _compact(self) -> None:
        """Drop the slots of stopped rows."""
        if self._cache is None:
            return
        keep = self._drop_stopped()
        if len(keep) == self._cache.slots:
            return
        if keep:
            self._cache.select(torch.tensor(keep, device=self.decoder.device))
        else:
            self._cache = None


class LockstepDecoder:
    """A transformers model with one of its adapters, or none.

    `prefill` returns logits instead of hidden states, so `logits`, which scoring calls on them, only
    converts to float32.
    """

    def __init__(self, model: Any, adapters: AdapterBank, adapter: str | None) -> None:
        self.model = model
        self._adapters = adapters
        self._adapter = adapter
        self.device = model.get_input_embeddings().weight.device
        self.vocab_size: int = model.get_output_embeddings().weight.shape[0]
        config = model.config.get_text_config()
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        size = (
            getattr(config, "head_dim", None)
            or config.hidden_size // config.num_attention_heads
        )
        numbers = 2 * config.num_hidden_layers * heads * size
        self.position_bytes: int = numbers * model.dtype.itemsize
        self.prefill_tokens = PREFILL_TOKENS
        self.is_small = False

    def prefill(self, tokens_BL: Tensor, *, all_positions: bool) -> tuple[Tensor, Any]:
        """Return logits [B, L, V], or [B, 1, V] of the last position, and the cache."""
        self._adapters.activate(self._adapter)
        last = 0 if all_positions else 1
        out = self.model(input_ids=tokens_BL, use_cache=True, logits_to_keep=last)
        return out.logits, out.past_key_values

    def step(self, tokens_B: Tensor, cache: Any) -> Tensor:
        """Return logits [B, V] after one more token per row."""
        self._adapters.activate(self._adapter)
        out = self.model(input_ids=tokens_B[:, None], past_key_values=cache, use_cache=True)
        return out.logits[:, -1].float()

    def logits(self, hidden: Tensor) -> Tensor:
        return hidden.float()

    def release(self) -> None:
        """Free the adapter."""
        if self._adapter is not None:
            self._adapters.remove(self._adapter)


class LockstepBatch(Batch):
    """A batch of rows with prompts of equal length. No row joins after `admit`."""

    decoder: LockstepDecoder

    @torch.inference_mode()
    def admit(self, rows: Sequence[Row]) -> None:
        for request in requests_of(rows):
            if request.needs_scores:
                tokens_1L = self._tensor([request.prompt])
                hidden, _ = self.decoder.prefill(tokens_1L, all_positions=True)
                place = np.arange(len(request.prompt))
                score_prompts(self.decoder, hidden[0], [(request, place)])
        note_shared(rows)
        prompts = [row.request.prompt for row in rows]
        distinct, numbers = np.unique(prompts, axis=0, return_inverse=True)
        tokens_UL = self._tensor(distinct)
        logits, self._cache = self.decoder.prefill(tokens_UL, all_positions=False)
        owner = self._tensor(numbers)
        self._cache.reorder_cache(owner)
        self.rows = list(rows)
        last_UV = logits[:, -1].float()
        self._take(last_UV.index_select(0, owner), self.rows)

    @torch.inference_mode()
    def step(self) -> None:
        self._stop_cancelled()
        count = len(self.rows)
        live = self._drop_stopped()
        if len(live) < count:
            if not live:
                self._cache = None
                return
            self._cache.reorder_cache(self._tensor(live))
        logits_BV = self.decoder.step(self._tensor(self.last_tokens()), self._cache)
        self._take(logits_BV, self.rows)

    def _tensor(self, values: Sequence | np.ndarray) -> Tensor:
        return torch.tensor(values, device=self.decoder.device)
