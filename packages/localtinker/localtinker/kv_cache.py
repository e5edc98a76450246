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
    """Keys and values of R slots, each with its own length: [2, R, M, C, D] of a layer, zero where nothing was
    written."""

    def __init__(
        self,
        layers: int,
        shape: tuple[int, int, int, int],
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        """`shape`: [R, M, C, D]."""
        of_layer = (2, *shape)
        self.layers = [torch.zeros(of_layer, dtype=dtype, device=device) for _ in range(layers)]
        self._view: CacheView | None = None  # reused until the width or the slots change

    @property
    def capacity(self) -> int:
        return self.layers[0].shape[3]

    @property
    def slots(self) -> int:
        return self.layers[0].shape[1]

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
        self._replace(lambda layer: layer.index_select(1, rows))

    def grow(self, capacity: int) -> None:
        """Add positions until there are at least `capacity`."""
        extra = capacity - self.capacity
        if extra > 0:
            self._replace(lambda layer: F.pad(layer, (0, 0, 0, extra)))

    def append(self, other: KVCache) -> None:
        """Append the slots of `other`, which must not be used afterwards. The larger capacity is kept."""
        other.grow(self.capacity)
        self.grow(other.capacity)
        self._replace(lambda layer: torch.cat((layer, other.layers.pop(0)), 1))

    def _replace(self, change: Callable[[Tensor], Tensor]) -> None:
        """Change layer by layer, so that only one layer exists twice at a time."""
        self._view = None
        for number, layer in enumerate(self.layers):
            self.layers[number] = change(layer)


class CacheView:
    """The first `width` positions of every slot of a cache, for attention of one new token per slot."""

    def __init__(self, cache: KVCache, width: int) -> None:
        self.width = width
        _, slots, self._heads, capacity, _ = cache.layers[0].shape
        self._dtype = cache.layers[0].dtype
        device = cache.layers[0].device
        # Flat index of a slot's position 0.
        first = capacity * torch.arange(slots * self._heads, device=device)
        self._first_RM = first.view(slots, self._heads)
        self._written = [layer.flatten(1, 3).unbind() for layer in cache.layers]
        self._read = []
        """Of each layer: keys [R M, D, W] and values [R M, W, D]."""
        for layer in cache.layers:
            keys, values = layer.flatten(1, 2)[:, :, :width]
            self._read.append((keys.mT, values))
        self._positions_W = torch.arange(width, device=device)

    def attention(self, positions_B: Tensor) -> Attend:
        places = (self._first_RM + positions_B[:, None]).flatten()
        later = self._positions_W > positions_B[:, None]
        bias = torch.where(later, -torch.inf, 0.0).to(self._dtype)
        bias = bias.repeat_interleave(self._heads, 0)[:, None]
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
