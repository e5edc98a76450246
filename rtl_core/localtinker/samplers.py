"""What samples a set of weights, and where a waiting row goes.

A sampler belongs to a base model, or to a frozen adapter on it. Dense models run on `decoder.py` in one running
batch; others run in lockstep. In deterministic mode a row's arithmetic must depend on its own request alone: dense
rows go to fixed-shape batches of their own width, which hold as many rows as this machine's kernels treat alike (one, if
need be).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from rtl_core.localtinker.batching import (
    PREFILL_TOKENS,
    GenerationBatch,
    fixed_batch_rows,
    fixed_width,
    prefill_tokens,
)
from rtl_core.localtinker.decoder import DenseDecoder
from rtl_core.localtinker.lockstep import LockstepBatch, LockstepDecoder
from rtl_core.localtinker.sampling import Row

Decode = Callable[[Sequence[int]], str]


class Batch(Protocol):
    """A set of rows that advance together."""

    rows: list[Row]

    @property
    def live(self) -> int: ...
    def positions(self, extra: Sequence[Row] = ()) -> int: ...
    def admit(self, rows: Sequence[Row]) -> None: ...
    def step(self) -> None: ...


class Sampler(Protocol):
    """One set of weights, ready to sample."""

    position_bytes: int  # of the cache, for one position of one row
    private_bytes: int  # held beyond the shared base weights
    one_thread: bool  # whether decoding is quicker on one thread
    prefill_tokens: int  # prompt tokens of one forward pass

    def place(self, rows: Sequence[Row], batches: list[Batch]) -> list[tuple[Batch, list[Row]]]:
        """The batches, running (from `batches`) or new, that `rows` should be admitted to."""
        ...

    def release(self) -> None: ...


class DenseSampler:
    """Sampling on `DenseDecoder`."""

    def __init__(
        self, decoder: DenseDecoder, decode: Decode, *, deterministic: bool, fixed_rows: dict[tuple, int]
    ) -> None:
        """`fixed_rows` remembers, for all samplers of one base, how many rows a fixed-shape batch may hold."""
        self.decoder = decoder
        self.position_bytes = decoder.position_bytes
        self.private_bytes = decoder.nbytes_private()
        self.one_thread = decoder.is_small
        self.prefill_tokens = prefill_tokens(decoder)
        self._decode = decode
        self._deterministic = deterministic
        self._fixed_rows = fixed_rows

    def place(self, rows: Sequence[Row], batches: list[Batch]) -> list[tuple[Batch, list[Row]]]:
        mine = [batch for batch in batches if isinstance(batch, GenerationBatch)]
        if not self._deterministic:
            return [(mine[0] if mine else GenerationBatch(self.decoder, self._decode), list(rows))]
        # Of each width the batch that rows are joining, the rows that join it, and how many more may.
        joining: dict[int, tuple[Batch, list[Row], int]] = {}
        placed: list[tuple[Batch, list[Row]]] = []
        for row in rows:
            width = fixed_width(row)
            if width not in joining or joining[width][2] == len(joining[width][1]):
                batch, room = self._batch_with_room(width, [b for b in mine if b.fixed_width == width])
                joining[width] = (batch, [], room)
                placed.append(joining[width][:2])
                mine = [b for b in mine if b is not batch]
            joining[width][1].append(row)
        return placed

    def _batch_with_room(self, width: int, running: Sequence[GenerationBatch]) -> tuple[GenerationBatch, int]:
        """One of the running batches of a width, or a new one, and how many rows may join it."""
        most = self._most_rows(width)
        for batch in running:
            if batch.live < most:
                return batch, most - batch.live
        return self._fixed(width), most

    def _most_rows(self, width: int) -> int:
        key = (self.decoder.shape_key, width)
        if key not in self._fixed_rows:
            self._fixed_rows[key] = fixed_batch_rows(self.decoder, width)
        return self._fixed_rows[key]

    def _fixed(self, width: int) -> GenerationBatch:
        return GenerationBatch(self.decoder, self._decode, fixed_width=width)

    def release(self) -> None:
        """Nothing to do: the decoder's tensors go with it."""


class LockstepSampler:
    """Sampling through transformers, rows of one prompt length together."""

    def __init__(self, decoder: LockstepDecoder, decode: Decode, *, deterministic: bool) -> None:
        self.decoder = decoder
        config = decoder.model.config.get_text_config()
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        element = decoder.model.dtype.itemsize
        self.position_bytes = 2 * config.num_hidden_layers * heads * size * element
        self.private_bytes = decoder.adapter_bytes
        self.one_thread = False
        self.prefill_tokens = PREFILL_TOKENS
        self._decode = decode
        self._deterministic = deterministic

    def place(self, rows: Sequence[Row], batches: list[Batch]) -> list[tuple[Batch, list[Row]]]:
        groups: dict[int, list[Row]] = {}
        for index, row in enumerate(rows):
            groups.setdefault(index if self._deterministic else len(row.request.prompt), []).append(row)
        return [(LockstepBatch(self.decoder, self._decode), group) for group in groups.values()]

    def release(self) -> None:
        self.decoder.release()
