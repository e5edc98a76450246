"""Key-value cache of a running batch. Rows have individual lengths, so that requests may join and leave.

Shapes: R slots, B rows, N query heads, M key-value heads, C capacity in positions, W width, D head size.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""Attention as a function of the layer's index, queries [*lead, N, D], keys and values [*lead, M, D]; same
number of elements as the queries."""
_BLOCK = 64  # caches grow in blocks of positions


class KVCache:
    """Keys and values of R slots, each with its own length: [R, M, C, D] per layer, zero where nothing was written."""

    def __init__(
        self,
        layers: int,
        shape: tuple[int, int, int, int],
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.keys = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(layers)]
        self.values = [torch.zeros_like(k) for k in self.keys]
        self._view: CacheView | None = None  # reused until the width or the slots change

    @property
    def capacity(self) -> int:
        return self.keys[0].shape[2]

    @property
    def slots(self) -> int:
        return self.keys[0].shape[0]

    def attention(self, positions_B: Tensor, length: int) -> Attend:
        """Return the attention of a step in which row b writes position `positions_B[b]` < `length` and
        sees all up to it.

        Grows the cache if needed, and reads little more than `length` positions.
        """
        if length > self.capacity:
            larger = int(1.5 * self.capacity)
            self.grow(round_up(max(length, larger)))
        width = min(round_up(length, 16), self.capacity)
        if self._view is None or self._view.width != width:
            self._view = CacheView(self, width)
        return self._view.attention(positions_B)

    def select(self, rows: Tensor) -> None:
        """Keep only these slots, in this order."""
        self._replace(lambda states, _: states.index_select(0, rows))

    def grow(self, capacity: int) -> None:
        """Add positions until there are at least `capacity`."""
        extra = capacity - self.capacity
        if extra > 0:
            self._replace(lambda states, _: F.pad(states, (0, 0, 0, extra)))

    def append(self, other: KVCache) -> None:
        """Append the slots of `other`, which must not be used afterwards. The larger capacity is kept."""
        other.grow(self.capacity)
        self.grow(other.capacity)
        self._replace(lambda states, theirs: torch.cat((states, theirs.pop(0))), other)

    def _replace(
        self, change: Callable[[Tensor, list[Tensor]], Tensor], other: KVCache | None = None
    ) -> None:
        """Change the states layer by layer, so that only one layer exists twice at a time."""
        self._view = None
        for mine, theirs in (
            (self.keys, other and other.keys),
            (self.values, other and other.values),
        ):
            for layer, states in enumerate(mine):
                mine[layer] = change(states, theirs or [])


class CacheView:
    """The first `width` positions of every slot of a cache, for attention of one new token per slot."""

    def __init__(self, cache: KVCache, width: int) -> None:
        self.width = width
        slots, self._heads, capacity, _ = cache.keys[0].shape
        dtype = cache.keys[0].dtype
        device = cache.keys[0].device
        # Flat index of a slot's position 0.
        count = slots * self._heads * capacity
        first = torch.arange(0, count, capacity, device=device)
        self._first_RM = first.view(slots, self._heads)
        layers = list(zip(cache.keys, cache.values, strict=True))
        self._written = [tuple(states.flatten(0, 2) for states in layer) for layer in layers]

        def read(states: Tensor) -> Tensor:
            return states.flatten(0, 1)[:, :width]

        self._read = [(read(keys).mT, read(values)) for keys, values in layers]
        """Of each layer: keys [R M, D, W] and values [R M, W, D]."""
        self._positions_W = torch.arange(width, device=device)
        self._never = torch.tensor(-torch.inf, dtype=dtype, device=device)
        self._always = torch.tensor(0.0, dtype=dtype, device=device)

    def attention(self, positions_B: Tensor) -> Attend:
        places = (self._first_RM + positions_B[:, None]).flatten()
        later = self._positions_W > positions_B[:, None]
        bias = torch.where(later, self._never, self._always)
        if self._heads > 1:
            bias = bias.repeat_interleave(self._heads, 0)
        bias = bias[:, None]
        mode = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
        of_layers = mode.fp32_precision

        def attend(index: int, q_BND: Tensor, k_BMD: Tensor, v_BMD: Tensor) -> Tensor:
            size = q_BND.shape[-1]
            for cells, states in zip(self._written[index], (k_BMD, v_BMD), strict=True):
                cells.index_copy_(0, places, states.reshape(-1, size))
            keys_T, values_W = self._read[index]
            q = q_BND.reshape(len(keys_T), -1, size)
            # Not oneDNN, which is three times slower for products of so few rows.
            mode.fp32_precision = "ieee"
            try:
                scores = torch.baddbmm(bias, q, keys_T, alpha=size**-0.5)
                weights = torch.softmax(scores, -1, torch.float32).to(scores.dtype)
                return torch.bmm(weights, values_W).view(q_BND.shape)
            finally:
                mode.fp32_precision = of_layers

        return attend


def round_up(n: int, block: int = _BLOCK) -> int:
    return -(-n // block) * block
