"""The key-value cache of a running batch, whose rows have their own lengths, so that requests join and leave it.

Shapes: R slots, M key-value heads, C capacity in positions, D head size, W width.
"""

from __future__ import annotations

from collections.abc import Callable

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
        self._replace(lambda states, _: states.index_select(0, rows))

    def grow(self, capacity: int) -> None:
        extra = capacity - self.capacity
        self._replace(lambda states, _: F.pad(states, (0, 0, 0, extra)))

    def append(self, other: KVCache) -> None:
        """Add the slots of `other`, which is of no use afterwards; both are brought to the larger capacity."""
        if other.capacity < self.capacity:
            other.grow(self.capacity)
        elif other.capacity > self.capacity:
            self.grow(other.capacity)
        self._replace(lambda states, theirs: torch.cat((states, theirs.pop(0))), other)

    def _replace(self, change: Callable[[Tensor, list[Tensor]], Tensor], other: KVCache | None = None) -> None:
        """Change the states of a layer at a time, so that no more than one layer is there twice."""
        self._view = None
        for mine, theirs in ((self.keys, other and other.keys), (self.values, other and other.values)):
            for layer, states in enumerate(mine):
                mine[layer] = change(states, theirs or [])
