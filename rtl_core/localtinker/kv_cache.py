"""The key-value cache of a running batch, whose rows have their own lengths, so that requests join and leave it.

Shapes: R slots, M key-value heads, C capacity in positions, D head size, W width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


class CacheView:
    """The first `width` positions of every slot of a cache, as attention to one new token reads and writes them."""

    def __init__(self, cache: KVCache, width: int) -> None:
        self.width = width
        shape = cache.keys[0].shape
        first = torch.arange(shape[0] * shape[1], device=cache.keys[0].device).view(shape[:2])
        self.first_RM = first * shape[2]  # index of a slot's position 0 among all positions
        self.written = [(k.flatten(0, 2), v.flatten(0, 2)) for k, v in zip(cache.keys, cache.values, strict=True)]
        self.read = [
            (k.flatten(0, 1)[:, :width].transpose(1, 2), v.flatten(0, 1)[:, :width])
            for k, v in zip(cache.keys, cache.values, strict=True)
        ]
        self.positions_W = torch.arange(width, device=cache.keys[0].device)


class KVCache:
    """Keys and values of R slots, each with its own length: [R, M, C, D] a layer, zero where nothing was written."""

    def __init__(self, layers: int, shape: tuple[int, int, int, int], dtype: torch.dtype, device: torch.device) -> None:
        self.keys = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(layers)]
        self.values = [torch.zeros_like(k) for k in self.keys]
        self._view: CacheView | None = None

    def view(self, width: int) -> CacheView:
        """The first `width` positions; made anew only when they or the slots have changed."""
        if self._view is None or self._view.width != width:
            self._view = CacheView(self, width)
        return self._view

    @property
    def capacity(self) -> int:
        return self.keys[0].shape[2]

    @property
    def slots(self) -> int:
        return self.keys[0].shape[0]

    def select(self, rows: Tensor) -> None:
        """Keep only these slots, in this order."""
        self.keys = [k.index_select(0, rows) for k in self.keys]
        self.values = [v.index_select(0, rows) for v in self.values]
        self._view = None

    def grow(self, capacity: int) -> None:
        extra = capacity - self.capacity
        self.keys = [F.pad(k, (0, 0, 0, extra)) for k in self.keys]
        self.values = [F.pad(v, (0, 0, 0, extra)) for v in self.values]
        self._view = None

    def append(self, other: KVCache) -> None:
        """Add the slots of `other`; both are brought to the larger capacity."""
        if other.capacity < self.capacity:
            other.grow(self.capacity)
        elif other.capacity > self.capacity:
            self.grow(other.capacity)
        self.keys = [torch.cat(pair) for pair in zip(self.keys, other.keys, strict=True)]
        self.values = [torch.cat(pair) for pair in zip(self.values, other.values, strict=True)]
        self._view = None
