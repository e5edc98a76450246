"""Sampling through transformers' own forward pass and cache, for models that `decoder.py` does not support.

Rows of equal prompt length advance together, so that no padding or masks are needed: hybrid and recurrent layers, sliding
windows and mixtures of experts run exactly as transformers implements them. Slower than `decoder.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rtl_core.localtinker.decoder import PREFILL_TOKENS
from rtl_core.localtinker.lora import AdapterBank
from rtl_core.localtinker.sampling import Batch, Row, requests_of
from rtl_core.localtinker.scoring import score_prompts


class LockstepDecoder:
    """A transformers model with one of its adapters, or none.

    `prefill` returns logits instead of hidden states, so `logits`, which scoring calls on them, only converts to float32.
    """

    def __init__(self, model: Any, adapters: AdapterBank, adapter: str | None) -> None:
        self.model = model
        self._adapters = adapters
        self._adapter = adapter
        self.device = model.get_input_embeddings().weight.device
        self.vocab_size: int = model.get_output_embeddings().weight.shape[0]
        config = model.config.get_text_config()
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.position_bytes: int = 2 * config.num_hidden_layers * heads * size * model.dtype.itemsize
        self.private_bytes = 0 if adapter is None else sum(4 * p.numel() for p in adapters.parameters(adapter))
        self.prefill_tokens = PREFILL_TOKENS
        self.is_small = False

    def prefill(self, tokens_BL: Tensor, *, all_positions: bool) -> tuple[Tensor, Any]:
        """Return logits [B, L, V], or [B, 1, V] of the last position, and the cache."""
        self._adapters.activate(self._adapter)
        out = self.model(input_ids=tokens_BL, use_cache=True, logits_to_keep=0 if all_positions else 1)
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
            if request.prompt_options.wanted and request.scores is None:
                hidden, _ = self.decoder.prefill(self._tensor([request.prompt]), all_positions=True)
                places = [np.arange(len(request.prompt))]
                score_prompts(self.decoder, hidden[0], places, [request], self._vocabulary.size)
        distinct = list({tuple(row.request.prompt): None for row in rows})
        logits, self._cache = self.decoder.prefill(self._tensor(distinct), all_positions=False)
        owner = self._tensor([distinct.index(tuple(row.request.prompt)) for row in rows])
        self._cache.reorder_cache(owner)
        self.rows = list(rows)
        self._tokens_B = self._take(logits[:, -1].float().index_select(0, owner), self.rows)

    @torch.inference_mode()
    def step(self) -> None:
        for row in self.rows:
            row.done = row.done or row.request.cancelled.is_set()
        live = [i for i, row in enumerate(self.rows) if not row.done]
        if len(live) < len(self.rows):
            self.rows, self._tokens_B = [self.rows[i] for i in live], [self._tokens_B[i] for i in live]
            if not live:
                self._cache = None
                return
            self._cache.reorder_cache(self._tensor(live))
        self._tokens_B = self._take(self.decoder.step(self._tensor(self._tokens_B), self._cache), self.rows)

    def _tensor(self, values: Sequence) -> Tensor:
        return torch.tensor(values, device=self.decoder.device)
