"""Continuous batching: rows join a running batch when their prompt is prefilled and leave it when they stop."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from rtl_core.localtinker.decoder import DenseDecoder, KVCache
from rtl_core.localtinker.sampling import Row, choose
from rtl_core.localtinker.scoring import score_prompt

_PREFILL_TOKENS = 8192  # padded prompt tokens of one forward pass
_BLOCK = 64  # the cache grows in blocks of positions
_DEAD_SHARE = 0.15  # compact the cache when more than this share of its slots has stopped


class GenerationBatch:
    """The rows of one set of weights that are being sampled together.

    Every slot has its own length, so that prompts of any lengths share a batch without padding the sequences.
    """

    def __init__(self, decoder: DenseDecoder, decode: Callable[[Sequence[int]], str]) -> None:
        self.decoder = decoder
        self._decode = decode
        self._rows: list[Row] = []
        self._cache: KVCache | None = None
        self._tokens_B: list[int] = []
        self._positions_B: list[int] = []

    @property
    def rows(self) -> list[Row]:
        return self._rows

    @property
    def live(self) -> int:
        return sum(not row.done for row in self._rows)

    def cost(self, rows: Sequence[Row]) -> int:
        """Cache positions that this batch would need at most with `rows` added."""
        both = [row for row in self._rows if not row.done] + list(rows)
        longest = max((len(r.request.prompt) + r.request.options.max_tokens for r in both), default=0)
        return len(both) * longest

    @torch.inference_mode()
    def admit(self, rows: Sequence[Row]) -> None:
        """Prefill the prompts of `rows`, score them if asked, take each row's first token, keep those that go on.

        Rows with the same prompt share one prefill.
        """
        by_prompt: dict[tuple[int, ...], list[Row]] = {}
        for row in rows:
            by_prompt.setdefault(tuple(row.request.prompt), []).append(row)
        for prompts in _length_buckets(list(by_prompt)):
            self._prefill(prompts, [by_prompt[p] for p in prompts])

    def _prefill(self, prompts: Sequence[tuple[int, ...]], groups: Sequence[list[Row]]) -> None:
        lengths = [len(p) for p in prompts]
        padded = torch.zeros(len(prompts), max(lengths), dtype=torch.long)
        for index, prompt in enumerate(prompts):
            padded[index, : len(prompt)] = torch.tensor(prompt)
        device = self.decoder.device
        goes_on = any(row.request.options.max_tokens > 1 for group in groups for row in group)
        capacity = _round_up(max(lengths) + 1)
        cache = KVCache(self.decoder, len(prompts), capacity) if goes_on else None
        hidden_BLH = self.decoder.hidden(padded.to(device), cache)
        for index, group in enumerate(groups):
            for request in {id(row.request): row.request for row in group}.values():
                if request.prompt_options.wanted and request.scores is None:
                    request.scores = score_prompt(self.decoder, hidden_BLH[index, : lengths[index]], request)
        last = torch.tensor(lengths, device=device) - 1
        logits_UV = self.decoder.logits(hidden_BLH[torch.arange(len(prompts), device=device), last])
        rows = [row for group in groups for row in group]
        owner = torch.tensor([i for i, group in enumerate(groups) for _ in group], device=device)
        tokens = self._take(logits_UV.index_select(0, owner), rows)
        keep = [i for i, row in enumerate(rows) if not row.done]
        if not keep or cache is None:
            return
        cache.select(owner[torch.tensor(keep, device=device)])
        if self._cache is None:
            self._cache = cache
        else:
            self._compact()
            self._cache.append(cache)
        self._rows += [rows[i] for i in keep]
        self._tokens_B += [tokens[i] for i in keep]
        self._positions_B += [lengths[int(owner[i])] for i in keep]

    @torch.inference_mode()
    def step(self) -> None:
        """One more token for every live row."""
        for row in self._rows:
            if not row.done and row.request.cancelled.is_set():
                row.done = True
        dead = sum(row.done for row in self._rows)
        if dead == len(self._rows):
            self._rows, self._tokens_B, self._positions_B, self._cache = [], [], [], None
            return
        if dead > _DEAD_SHARE * len(self._rows):
            self._compact()
        assert self._cache is not None
        device = self.decoder.device
        needed = max(self._positions_B) + 1
        if needed > self._cache.capacity:
            self._cache.grow(_round_up(max(needed, int(1.5 * self._cache.capacity))))
        logits_BV = self.decoder.step(
            torch.tensor(self._tokens_B, device=device),
            torch.tensor(self._positions_B, device=device),
            self._cache,
            min(_round_up(needed, 16), self._cache.capacity),
        )
        live = [i for i, row in enumerate(self._rows) if not row.done]
        rows = [self._rows[i] for i in live]
        if len(live) < len(self._rows):
            logits_BV = logits_BV.index_select(0, torch.tensor(live, device=device))
        for index, token in zip(live, self._take(logits_BV, rows), strict=True):
            self._tokens_B[index] = token
            if not self._rows[index].done:
                self._positions_B[index] += 1

    def _take(self, logits_BV: Tensor, rows: Sequence[Row]) -> list[int]:
        tokens, logprobs = choose(logits_BV, rows)
        for row, token, logprob in zip(rows, tokens, logprobs, strict=True):
            if row.take(token, logprob, self._decode):
                row.request.row_done()
        return tokens

    def _compact(self) -> None:
        """Drop the slots of rows that have stopped."""
        keep = [i for i, row in enumerate(self._rows) if not row.done]
        if len(keep) == len(self._rows):
            return
        assert self._cache is not None
        self._cache.select(torch.tensor(keep, dtype=torch.long, device=self.decoder.device))
        self._rows = [self._rows[i] for i in keep]
        self._tokens_B = [self._tokens_B[i] for i in keep]
        self._positions_B = [self._positions_B[i] for i in keep]


def _length_buckets(prompts: list[tuple[int, ...]]) -> list[list[tuple[int, ...]]]:
    """Prompts sorted by length and cut so that a padded bucket stays within the prefill budget."""
    buckets: list[list[tuple[int, ...]]] = []
    for prompt in sorted(prompts, key=len, reverse=True):
        if buckets and (len(buckets[-1]) + 1) * len(buckets[-1][0]) <= _PREFILL_TOKENS:
            buckets[-1].append(prompt)
        else:
            buckets.append([prompt])
    return buckets


def _round_up(n: int, block: int = _BLOCK) -> int:
    return -(-n // block) * block
