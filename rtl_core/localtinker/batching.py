"""Continuous batching: rows join a running batch when their prompt is prefilled and leave it when they stop."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from rtl_core.localtinker.decoder import DenseDecoder
from rtl_core.localtinker.kv_cache import KVCache, round_up
from rtl_core.localtinker.packing import Layout, packed_passes
from rtl_core.localtinker.sampling import Row, SampleRequest, choose, requests_of, tensor_of
from rtl_core.localtinker.scoring import score_prompts
from rtl_core.localtinker.shared_cache import SharedCache

PREFILL_TOKENS = 8192  # padded prompt tokens of one forward pass
_CPU_PREFILL_TOKENS = 2048  # on a CPU: more are no faster, and take memory
_SMALL_PREFILL_TOKENS = 1024  # of a small model: what lies between its layers stays in a core's cache
_LEAST_WIDTH = 64  # of the cache of a fixed-shape batch
_DEAD_SHARE = 0.15  # compact the cache when more than this share of its slots has stopped
CHECK_BYTES = 1 << 30  # cache memory that the check of batch invariance may take
_ROW_BLOCK = 8  # a fixed-shape batch is padded to a multiple of this many rows
_MOST_FIXED_ROWS = 64  # and holds at most so many: every number of rows up to it is checked


class GenerationBatch:
    """The rows of one set of weights that are being sampled together.

    Every slot has its own length, so that prompts of any lengths share a batch without padding the sequences.

    With `fixed_width` the arithmetic of a row does not depend on its companions: each prompt is prefilled alone, the
    cache is read at that width from the first step to the last, and the batch is padded to a multiple of 8 rows. Whoever
    places rows keeps the batch within `fixed_batch_rows`.
    """

    def __init__(
        self, decoder: DenseDecoder, decode: Callable[[Sequence[int]], str], *, fixed_width: int | None = None
    ) -> None:
        self.decoder = decoder
        self.rows: list[Row] = []
        self._requests: list[SampleRequest] = []  # of these rows
        self._decode = decode
        self.fixed_width = fixed_width
        self._cache: KVCache | SharedCache | None = None
        self._tokens_B: list[int] = []
        self._positions_B: list[int] = []

    @property
    def _shares(self) -> bool:
        """Whether rows share what their prompts have in common: for a small model that saves less than it costs."""
        return self.fixed_width is None and not self.decoder.is_small

    @property
    def live(self) -> int:
        return len(self.rows) - sum([row.done for row in self.rows])

    def positions(self, extra: Sequence[Row] = ()) -> int:
        """Cache positions that this batch needs at most, with `extra` rows added."""
        both = [row for row in self.rows if not row.done] + list(extra)
        requests = requests_of(both)
        if self._shares:
            prompt = max((len(request.prompt) for request in requests), default=0)
            answer = max((request.options.max_tokens for request in requests), default=0)
            return len(requests) * prompt + len(both) * answer
        return len(both) * max((len(request.prompt) + request.options.max_tokens for request in requests), default=0)

    @torch.inference_mode()
    def admit(self, rows: Sequence[Row]) -> None:
        """Prefill the prompts of `rows`, score them if asked, take each row's first token, keep those that go on.

        Rows with the same prompt share one prefill. Prompts that are scored and go no further share what they have in common.
        """
        by_prompt: dict[tuple[int, ...], list[Row]] = {}
        for row in rows:
            by_prompt.setdefault(tuple(row.request.prompt), []).append(row)
        budget = 1 if self.fixed_width is not None else prefill_tokens(self.decoder)
        packs = {p: self._shares and not any(row.request.goes_on for row in group) for p, group in by_prompt.items()}
        ending = [p for p, packed in packs.items() if packed]
        for numbers in packed_passes(ending, budget):
            layout = Layout([ending[i] for i in numbers])
            groups = [by_prompt[ending[i]] for i in numbers]
            self._first_tokens(self.decoder.packed_hidden(layout), layout.rows, groups)
        for prompts in _length_buckets([p for p, packed in packs.items() if not packed], budget):
            self._prefill(prompts, [by_prompt[p] for p in prompts])

    def _prefill(self, prompts: Sequence[tuple[int, ...]], groups: Sequence[list[Row]]) -> None:
        device = self.decoder.device
        lengths = [len(p) for p in prompts]
        padded = torch.zeros(len(prompts), max(lengths), dtype=torch.long)
        for index, prompt in enumerate(prompts):
            padded[index, : len(prompt)] = torch.tensor(prompt)
        goes_on = any(row.request.goes_on for group in groups for row in group)
        # Behind a prompt that is shared nothing is written.
        capacity = self.fixed_width or (round_up(max(lengths), 16) if self._shares else round_up(max(lengths) + 1))
        cache = self.decoder.new_cache(len(prompts), capacity) if goes_on else None
        hidden_NH = self.decoder.hidden(padded.to(device), cache).flatten(0, 1)
        starts = range(0, padded.numel(), padded.shape[1])
        positions = [np.arange(start, start + length) for start, length in zip(starts, lengths, strict=True)]
        tokens = self._first_tokens(hidden_NH, positions, groups)
        rows = [row for group in groups for row in group]
        owner = [i for i, group in enumerate(groups) for _ in group]
        keep = [i for i, row in enumerate(rows) if not row.done]
        if not keep or cache is None:
            return
        joining: KVCache | SharedCache = cache
        if self._shares:
            joining = SharedCache(cache, lengths, [owner[i] for i in keep])
        else:
            cache.select(torch.tensor([owner[i] for i in keep], device=device))
        self._compact()
        if self._cache is None:
            self._cache = joining
        else:
            self._cache.append(joining)  # type: ignore[arg-type]  # one kind a batch
        self.rows += [rows[i] for i in keep]
        self._tokens_B += [tokens[i] for i in keep]
        self._positions_B += [lengths[owner[i]] for i in keep]
        self._requests = requests_of(self.rows)

    def _first_tokens(
        self, hidden_NH: Tensor, positions: Sequence[np.ndarray], groups: Sequence[list[Row]]
    ) -> list[int]:
        """Score the prompts whose positions have these hidden states, and take the first token of the rows of each."""
        self._score(hidden_NH, positions, groups)
        last = [int(rows_P[-1]) for rows_P, group in zip(positions, groups, strict=True) for _ in group]
        distinct = sorted(set(last))
        device = hidden_NH.device
        logits_UV = self.decoder.logits(hidden_NH[torch.tensor(distinct, device=device)])
        owner = torch.tensor([distinct.index(row) for row in last], device=device)
        return self._take(logits_UV.index_select(0, owner), [row for group in groups for row in group])

    def _score(self, hidden_NH: Tensor, positions: Sequence[np.ndarray], groups: Sequence[list[Row]]) -> None:
        """Answer what the requests of these prompts ask about them."""
        asking = [
            (rows_P, request)
            for rows_P, group in zip(positions, groups, strict=True)
            for request in requests_of(group)
            if request.prompt_options.wanted and request.scores is None
        ]
        if self.fixed_width is None:
            score_prompts(self.decoder, hidden_NH, [rows_P for rows_P, _ in asking], [request for _, request in asking])
            return
        # One request at a time: the number of rows in the product with the head may change their last bits.
        for rows_P, request in asking:
            score_prompts(self.decoder, hidden_NH, [rows_P], [request])

    @torch.inference_mode()
    def step(self) -> None:
        """One more token for every live row."""
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
        # Choosing for the few rows that have stopped, too, costs less than taking the others' logits out.
        self._tokens_B = self._take(self._forward()[: len(self.rows)], self.rows)
        self._positions_B = [p + (not row.done) for p, row in zip(self._positions_B, self.rows, strict=True)]

    def _forward(self) -> Tensor:
        """Logits of all slots; a fixed-shape batch is first padded with idle slots, which read and write only themselves."""
        assert self._cache is not None
        tokens, positions = self._tokens_B, self._positions_B
        if self.fixed_width is not None:
            width = self.fixed_width
            missing = round_up(len(self.rows), _ROW_BLOCK) - self._cache.slots
            if missing > 0:
                assert isinstance(self._cache, KVCache)
                self._cache.append(self.decoder.new_cache(missing, width))
            idle = self._cache.slots - len(self.rows)
            tokens, positions = tokens + [0] * idle, positions + [0] * idle
        else:
            width = self._cache.width_for(positions)
        device = self.decoder.device
        return self.decoder.step(
            tensor_of(tokens, np.int64, device), tensor_of(positions, np.int64, device), self._cache, width
        )

    def _take(self, logits_BV: Tensor, rows: Sequence[Row]) -> list[int]:
        tokens, logprobs = choose(logits_BV, rows)
        for row, token, logprob in zip(rows, tokens, logprobs, strict=True):
            if not row.done and row.take(token, logprob, self._decode):
                row.request.row_done()
        return tokens

    def _compact(self) -> None:
        """Drop the slots of rows that have stopped, and idle ones."""
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


def prefill_tokens(decoder: DenseDecoder) -> int:
    """Padded prompt tokens of one forward pass."""
    if decoder.is_small:
        return _SMALL_PREFILL_TOKENS
    return _CPU_PREFILL_TOKENS if decoder.device.type == "cpu" else PREFILL_TOKENS


def fixed_width(row: Row) -> int:
    """The cache width of a row in deterministic mode: a function of its own request alone."""
    needed = len(row.request.prompt) + row.request.options.max_tokens
    width = _LEAST_WIDTH
    while width < needed:
        width *= 2
    return width


@torch.inference_mode()
def fixed_batch_rows(decoder: DenseDecoder, width: int) -> int:
    """How many rows a fixed-shape batch of `width` may hold so that a row gets the same bits whatever its place and companions.

    Measured on this machine, since matrix kernels differ: some treat every row alike, some choose another order of additions
    for another number of rows, some compute the last rows of a batch apart. One row is stepped in batches of 8, 16, ... rows,
    in every place, and among rows of other tokens and lengths. The answer is the largest number of rows up to which all
    batches agree, or 1 (each row in a batch of its own) where not even those of 8 rows do. Batches that do not fit into the
    memory set aside for the check count as different.
    """
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(decoder.device, decoder.dtype)

    def random_states(count: int) -> list[tuple[Tensor, Tensor]]:
        """Keys and values of `count` rows, for every layer."""
        shape = (count, decoder.kv_heads, width, decoder.head_dim)
        return [(random(*shape), random(*shape)) for _ in decoder.layers]

    own, others = random_states(1), random_states(_ROW_BLOCK)

    def logits_of(count: int, places: Sequence[int]) -> Tensor:
        """Logits of the row in these places of a batch of `count`, among others: [places, V]."""
        cache, index = decoder.new_cache(count, width), list(places)
        for layer in range(len(decoder.layers)):
            for states, mine, theirs in zip((cache.keys, cache.values), own[layer], others[layer], strict=True):
                states[layer].unflatten(0, (-1, _ROW_BLOCK)).copy_(theirs)
                states[layer][index] = mine
        tokens = torch.randint(decoder.vocab_size, (count,), generator=generator)
        positions = torch.randint(1, width - 1, (count,), generator=generator)
        tokens[index], positions[index] = 5 % decoder.vocab_size, width // 2 + 5
        return decoder.step(tokens.to(decoder.device), positions.to(decoder.device), cache, width)[index]

    expected = None
    largest = 1
    for count in range(_ROW_BLOCK, _MOST_FIXED_ROWS + 1, _ROW_BLOCK):
        if count * width * decoder.position_bytes > CHECK_BYTES:
            break
        seen = torch.cat([logits_of(count, range(count)), logits_of(count, [count // 2])])
        expected = seen[:1] if expected is None else expected
        if not torch.equal(seen, expected.expand_as(seen)):
            break
        largest = count
    return largest


def _length_buckets(prompts: list[tuple[int, ...]], budget: int) -> list[list[tuple[int, ...]]]:
    """Prompts sorted by length and cut so that a padded bucket stays within `budget` tokens (or holds one prompt)."""
    buckets: list[list[tuple[int, ...]]] = []
    for prompt in sorted(prompts, key=len, reverse=True):
        if buckets and (len(buckets[-1]) + 1) * len(buckets[-1][0]) <= budget:
            buckets[-1].append(prompt)
        else:
            buckets.append([prompt])
    return buckets
