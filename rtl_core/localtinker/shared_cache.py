"""The cache of a batch whose rows are groups of answers: a prompt's keys and values are there once, and read once for its group.

Where a model does not fit into a core's cache, reading every row's copy of the prompt is what decoding waits for.

Shapes as in `kv_cache.py`; C positions of a prompt at most.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rtl_core.localtinker.kv_cache import Attend, KVCache, round_up, softmax


class SharedCache:
    """Prompts, and behind them what each row has of its own."""

    def __init__(self, prompts: KVCache, lengths: Sequence[int], owner: Sequence[int]) -> None:
        """`prompts` holds prompts of these lengths; row b follows prompt `owner[b]`."""
        self._prompts = prompts
        self._lengths = list(lengths)
        self._owner = list(owner)
        self._own = prompts.empty(len(owner), round_up(1))
        self._grouped: _Groups | None = None
        self._forget_unused()

    @property
    def slots(self) -> int:
        return len(self._owner)

    def width_for(self, positions: Sequence[int]) -> int:
        """How much of the rows' own part has to be read when they write these positions; it grows if it must."""
        return self._own.width_for([p - self._lengths[u] for p, u in zip(positions, self._owner, strict=True)])

    def attention(self, positions_B: Tensor, width: int) -> Attend:
        """Attention of a step in which row b writes position `positions_B[b]` and sees all up to it."""
        groups = self._groups()
        own_B = positions_B - groups.lengths_B
        view, prompts = self._own.view(width), self._prompts.view(self._prompts.capacity)
        places, bias_own = view.places(own_B), view.bias(own_B)
        bias_prompts = prompts.bias(groups.lengths_U - 1)

        def attend(index: int, q_BND: Tensor, k_BMD: Tensor, v_BMD: Tensor) -> Tensor:
            view.write(index, places, k_BMD, v_BMD)
            keys_T, values_W = view.read[index]
            prompt_keys_T, prompt_values_C = prompts.read[index]
            scale = q_BND.shape[-1] ** -0.5
            q = q_BND.reshape(len(keys_T), -1, q_BND.shape[-1])
            scores = torch.baddbmm(bias_own, q, keys_T, alpha=scale)
            of_prompt = groups.by_row(torch.baddbmm(bias_prompts, groups.by_prompt(q), prompt_keys_T, alpha=scale))
            weights = softmax(torch.cat((of_prompt, scores), -1))
            of_prompt, of_own = weights.split((of_prompt.shape[-1], width), -1)
            attended = groups.by_row(torch.bmm(groups.by_prompt(of_prompt), prompt_values_C))
            return torch.baddbmm(attended, of_own, values_W).view(q_BND.shape)

        return attend

    def select(self, rows: Tensor) -> None:
        """Keep only these rows, in this order."""
        self._own.select(rows)
        self._owner = [self._owner[i] for i in rows.tolist()]
        self._forget_unused()

    def append(self, other: SharedCache) -> None:
        """Add the rows of `other`, which is of no use afterwards."""
        self._owner += [len(self._lengths) + u for u in other._owner]
        self._lengths += other._lengths
        self._prompts.append(other._prompts)
        self._own.append(other._own)
        self._forget_unused()

    def _forget_unused(self) -> None:
        """Drop the prompts that no row follows."""
        self._grouped = None
        used = sorted(set(self._owner))
        if len(used) < len(self._lengths):
            self._prompts.select(torch.tensor(used, device=self._prompts.keys[0].device))
            self._lengths = [self._lengths[u] for u in used]
            self._owner = [used.index(u) for u in self._owner]

    def _groups(self) -> _Groups:
        """Made anew only when the rows have changed."""
        if self._grouped is None:
            first = self._prompts.keys[0]
            self._grouped = _Groups(self._lengths, self._owner, first.shape[1], first.device)
        return self._grouped


class _Groups:
    """Which rows follow which prompt; groups smaller than the largest are filled up with zeros."""

    def __init__(self, lengths: Sequence[int], owner: Sequence[int], heads: int, device: torch.device) -> None:
        count = [0] * len(lengths)
        places = []
        for u in owner:
            places.append((u, count[u]))
            count[u] += 1
        self._shape = (len(lengths), max(count))
        self._heads = heads
        self._place_B = torch.tensor([u * max(count) + i for u, i in places], device=device)
        self.lengths_U = torch.tensor(lengths, device=device)
        self.lengths_B = self.lengths_U[torch.tensor(owner, device=device)]

    def by_prompt(self, x: Tensor) -> Tensor:
        """[U M, G g, X] of [B M, g, X]."""
        (prompts, most), (_, g, size) = self._shape, x.shape
        filled = x.new_zeros(prompts * most, self._heads, g, size)
        filled.index_copy_(0, self._place_B, x.view(-1, self._heads, g, size))
        grouped = filled.view(prompts, most, self._heads, g, size).transpose(1, 2)
        return grouped.reshape(prompts * self._heads, most * g, size)

    def by_row(self, x: Tensor) -> Tensor:
        """[B M, g, X] of [U M, G g, X]."""
        (prompts, most), size = self._shape, x.shape[-1]
        rows = x.view(prompts, self._heads, most, -1, size).transpose(1, 2).flatten(0, 1)
        return rows.index_select(0, self._place_B).flatten(0, 1)
