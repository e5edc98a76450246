"""Continuous batching: rows join a running batch when their prompt is prefilled and leave it when they stop."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from rtl_core.localtinker.decoder import DenseDecoder
from rtl_core.localtinker.kv_cache import KVCache, round_up
from rtl_core.localtinker.packing import Layout, packed_passes, padded, padded_passes
from rtl_core.localtinker.sampling import Batch, Row, SampleRequest, Vocabulary, requests_of, tensor_of
from rtl_core.localtinker.scoring import score_prompts

_DEAD_SHARE = 0.15  # share of stopped slots above which the cache is compacted


class GenerationBatch(Batch):
    """A batch that rows may join at any time. Every slot has its own length, so that no sequence is padded.

    Prompts that are scored, with at most one sampled token, share the computation of common prefixes.
    """

    decoder: DenseDecoder
    _cache: KVCache | None

    def __init__(self, decoder: DenseDecoder, vocabulary: Vocabulary) -> None:
        super().__init__(decoder, vocabulary)
        self._requests: list[SampleRequest] = []  # of the rows
        self._positions_B: list[int] = []  # of the last token of each row

    @torch.inference_mode()
    def admit(self, rows: Sequence[Row]) -> None:
        by_prompt: dict[tuple[int, ...], list[Row]] = {}
        for row in rows:
            by_prompt.setdefault(tuple(row.request.prompt), []).append(row)
        budget = self.decoder.prefill_tokens
        packed: list[tuple[int, ...]] = []
        unpacked: list[tuple[int, ...]] = []
        for prompt, group in by_prompt.items():
            # For a small model sharing prefixes costs more than it saves.
            shares = not self.decoder.is_small and not any(row.request.needs_cache for row in group)
            (packed if shares else unpacked).append(prompt)
        for numbers in packed_passes(packed, budget):
            layout = Layout([packed[i] for i in numbers])
            groups = [by_prompt[packed[i]] for i in numbers]
            self._first_tokens(self.decoder.packed_hidden(layout), layout.rows, groups)
        for numbers in padded_passes(unpacked, budget):
            self._prefill([unpacked[i] for i in numbers], [by_prompt[unpacked[i]] for i in numbers])

    def _prefill(self, prompts: Sequence[tuple[int, ...]], groups: Sequence[list[Row]]) -> None:
        device = self.decoder.device
        lengths = [len(p) for p in prompts]
        tokens_BL = padded(prompts)
        needs_cache = any(row.request.needs_cache for group in groups for row in group)
        cache = self.decoder.new_cache(len(prompts), round_up(max(lengths) + 1)) if needs_cache else None
        hidden_NH = self.decoder.hidden(tokens_BL.to(device), cache).flatten(0, 1)
        starts = range(0, tokens_BL.numel(), tokens_BL.shape[1])
        positions = [np.arange(start, start + length) for start, length in zip(starts, lengths, strict=True)]
        tokens = self._first_tokens(hidden_NH, positions, groups)
        rows = [row for group in groups for row in group]
        owner = [i for i, group in enumerate(groups) for _ in group]
        keep = [i for i, row in enumerate(rows) if not row.done]
        if not keep or cache is None:
            return
        cache.select(torch.tensor([owner[i] for i in keep], device=device))
        self._compact()
        if self._cache is None:
            self._cache = cache
        else:
            self._cache.append(cache)
        self.rows += [rows[i] for i in keep]
        self._tokens_B += [tokens[i] for i in keep]
        self._positions_B += [lengths[owner[i]] for i in keep]
        self._requests = requests_of(self.rows)

    def _first_tokens(
        self, hidden_NH: Tensor, positions: Sequence[np.ndarray], groups: Sequence[list[Row]]
    ) -> list[int]:
        """Score the prompts and sample their rows' first tokens. `positions[i]` are the rows of `hidden_NH` with prompt i."""
        places, requests = [], []
        for rows_P, group in zip(positions, groups, strict=True):
            for request in requests_of(group):
                if request.prompt_options.wanted and request.scores is None:
                    places.append(rows_P)
                    requests.append(request)
        score_prompts(self.decoder, hidden_NH, places, requests, self._vocabulary.size)
        last = [int(rows_P[-1]) for rows_P, group in zip(positions, groups, strict=True) for _ in group]
        distinct = sorted(set(last))
        device = hidden_NH.device
        logits_UV = self.decoder.logits(hidden_NH[torch.tensor(distinct, device=device)])
        owner = torch.tensor([distinct.index(row) for row in last], device=device)
        return self._take(logits_UV.index_select(0, owner), [row for group in groups for row in group])

    @torch.inference_mode()
    def step(self) -> None:
        for request in self._requests:
            if request.cancelled.is_set():
                for row in request.rows:
                    row.done = True
        live = self.live
        if not live:
            self.rows, self._requests, self._tokens_B, self._positions_B, self._cache = [], [], [], [], None
            return
        if len(self.rows) - live > _DEAD_SHARE * len(self.rows):
            self._compact()
        assert self._cache is not None
        device = self.decoder.device
        tokens_B, positions_B = (tensor_of(x, np.int64, device) for x in (self._tokens_B, self._positions_B))
        logits_BV = self.decoder.step(tokens_B, positions_B, self._cache)
        # Sampling for the few stopped rows as well is cheaper than selecting the logits of the others.
        self._tokens_B = self._take(logits_BV, self.rows)
        self._positions_B = [p + (not row.done) for p, row in zip(self._positions_B, self.rows, strict=True)]

    def _compact(self) -> None:
        """Drop the slots of stopped rows."""
        if self._cache is None:
            return
        keep = [i for i, row in enumerate(self.rows) if not row.done]
        if len(keep) == self._cache.slots:
            return
        self._cache.select(torch.tensor(keep, dtype=torch.long, device=self.decoder.device))
        self.rows = [self.rows[i] for i in keep]
        self._tokens_B = [self._tokens_B[i] for i in keep]
        self._positions_B = [self._positions_B[i] for i in keep]
        self._requests = requests_of(self.rows)
