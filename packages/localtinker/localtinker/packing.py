"""Batching of sequences into passes: padded to equal length, or packed so that common prefixes are computed once.

The answers of a group share a prompt, and their scores share a hint. With four answers of 80 tokens to a
prompt of 250 tokens, packing needs 570 rows instead of 1320. Under causal attention a shared row does not
depend on what follows it, so the results are equal, and the gradient of a shared row is the sum of the
gradients of its copies.

Shapes: N rows of a pass, D head size, heads as they come.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

BLOCK = 512  # queries per attention call, which bounds the size of the mask
MIN_PREFIX = 8  # shorter prefixes save less than attention in two parts costs
Tokens = Sequence[int] | np.ndarray
Sequences = Sequence[Tokens]
Passes = list[list[int]]
"""The indices of the sequences of each pass."""


def padded_passes(sequences: Sequences, budget: int) -> Passes:
    """Return the sequence indices of each pass: sorted by length, at most `budget` padded tokens, at least
    one sequence."""
    passes: Passes = []
    longest = budget
    for number in sorted(range(len(sequences)), key=lambda i: -len(sequences[i])):
        if passes and (len(passes[-1]) + 1) * longest <= budget:
            passes[-1].append(number)
        else:
            passes.append([number])
            longest = len(sequences[number])
    return passes


def padded(sequences: Sequences) -> Tensor:
    """Return right-padded tokens [B, L]."""
    tensors = [torch.as_tensor(tokens) for tokens in sequences]
    return nn.utils.rnn.pad_sequence(tensors, batch_first=True)


@dataclass(frozen=True)
class Family:
    """Indices of sequences that share their first `prefix` tokens. Each has at least one token after the prefix."""

    members: tuple[int, ...]
    prefix: int

    def saved(self) -> int:
        """Number of rows that sharing saves."""
        return (len(self.members) - 1) * self.prefix


def families_of(sequences: Sequences) -> list[Family]:
    """Group sequences into families. Neighbours in lexicographic order merge, longest common prefix first,
    while that saves rows."""
    arrays = [np.asarray(sequence) for sequence in sequences]
    order = sorted(range(len(arrays)), key=lambda i: arrays[i].tolist())
    neighbours = itertools.pairwise(arrays[i] for i in order)
    common = [common_length(a, b) for a, b in neighbours]
    # The family of each position in `order`; its members are neighbours.
    families = [Family((i,), len(arrays[i]) - 1) for i in order]
    for place in sorted(range(len(common)), key=lambda place: -common[place]):
        left, right = families[place : place + 2]
        prefix = min(left.prefix, right.prefix, common[place])
        both = Family(left.members + right.members, prefix)
        apart = left.saved() + right.saved()
        if prefix >= MIN_PREFIX and both.saved() > apart:
            first = place + 1 - len(left.members)
            count = len(both.members)
            families[first : first + count] = [both] * count
    return [
        family if len(family.members) > 1 else Family(family.members, 0)
        for family in dict.fromkeys(families)
    ]


def packed_passes(sequences: Sequences, budget: int) -> Passes:
    """Return the sequence indices of each pass, of at most `budget` rows.

    A pass may be larger for one longer sequence, or for several members of a family with a long prompt: up
    to the smaller of twice the longest member and eight budgets.
    """
    blocks: list[tuple[int, Sequence[int]]] = []
    for family in families_of(sequences):
        prefix = family.prefix
        lengths = [len(sequences[i]) - prefix for i in family.members]
        most = max(budget, min(2 * (prefix + max(lengths)), 8 * budget))
        count = 1
        sizes = [sum(lengths)]
        while count < len(lengths) and prefix + max(sizes) > most:
            count += 1
            sizes = list(map(sum, shares(lengths, count)))
        for size, part in zip(sizes, shares(family.members, count), strict=True):
            blocks.append((prefix + size, part))
    passes: Passes = []
    size = 0
    for rows, part in sorted(blocks, key=lambda block: (-block[0], block[1])):
        if passes and size + rows <= budget:
            passes[-1] += part
            size += rows
        else:
            passes.append(list(part))
            size = rows
    return passes


def shares(values: Sequence[int], count: int) -> list[Sequence[int]]:
    """Split a list into `count` consecutive parts of nearly equal length."""
    length = len(values)
    bounds = [length * i // count for i in range(count + 1)]
    return [values[start:end] for start, end in itertools.pairwise(bounds)]


def chunks(first: int, end: int, size: int) -> list[tuple[int, int]]:
    """Return the bounds of consecutive ranges of at most `size`, from `first` to before `end`."""
    starts = range(first, end, size)
    return [(start, min(start + size, end)) for start in starts]


def common_length(a: Tokens, b: Tokens) -> int:
    """Return the length of the common prefix of two sequences."""
    length = min(len(a), len(b))
    first = np.asarray(a[:length])
    second = np.asarray(b[:length])
    same = first == second
    return length if same.all() else int(same.argmin())


class Layout:
    """The rows of a pass over sequences, with common prefixes stored once."""

    def __init__(self, sequences: Sequences) -> None:
        self.spans: list[tuple[slice, slice]] = []
        """Consecutive rows of a sequence, and those of the shared prefix before them, which may be empty."""
        nothing = np.zeros(0, np.int64)
        self.rows: list[np.ndarray] = [nothing] * len(sequences)
        """For each sequence, the rows of its positions."""
        tokens: list[np.ndarray] = []
        positions: list[np.ndarray] = []
        end = 0

        def add(part: np.ndarray, first: int) -> slice:
            nonlocal end
            tokens.append(part)
            positions.append(np.arange(first, first + len(part)))
            end += len(part)
            return slice(end - len(part), end)

        for family in families_of(sequences):
            members = [np.asarray(sequences[i]) for i in family.members]
            prefix = add(members[0][: family.prefix], 0)
            if family.prefix:
                self.spans.append((slice(0, 0), prefix))
            for i, member in zip(family.members, members, strict=True):
                rows = add(member[family.prefix :], family.prefix)
                self.spans.append((prefix, rows))
                self.rows[i] = np.r_[prefix, rows]
        tokens_N = np.concatenate(tokens).astype(np.int64)
        self.tokens_N = torch.from_numpy(tokens_N)
        self.positions_N = torch.from_numpy(np.concatenate(positions))

    @property
    def longest(self) -> int:
        return max(map(len, self.rows))

    @property
    def keys(self) -> int:
        """Number of key rows that attention copies: each prefix, joined with each of its members' own rows."""
        total = 0
        for prefix, rows in self.spans:
            length = prefix.stop - prefix.start
            if length:
                total += length + rows.stop - rows.start
        return total

    def attention(self, q_NHD: Tensor, k_NHD: Tensor, v_NHD: Tensor) -> Tensor:
        """Return causal attention softmax(q k^T / sqrt(D)) v within each sequence, [N, heads D]."""
        q, k, v = (states.transpose(0, 1).unsqueeze(0) for states in (q_NHD, k_NHD, v_NHD))
        grouped = q.shape[1] != k.shape[1]
        attend = partial(F.scaled_dot_product_attention, enable_gqa=grouped)
        parts = []
        for shared, rows in self.spans:
            if shared.start == shared.stop:
                parts.append(
                    attend(q[:, :, rows], k[:, :, rows], v[:, :, rows], is_causal=True)
                )
                continue
            keys = torch.cat((k[:, :, shared], k[:, :, rows]), 2)
            values = torch.cat((v[:, :, shared], v[:, :, rows]), 2)
            for start, end in chunks(rows.start, rows.stop, BLOCK):
                count = end - start
                visible = keys.shape[2] - (rows.stop - end)
                mask = torch.ones(count, visible, dtype=torch.bool, device=q.device)
                part = attend(
                    q[:, :, start:end],
                    keys[:, :, :visible],
                    values[:, :, :visible],
                    attn_mask=mask.tril_(visible - count),
                )
                parts.append(part)
        attended = torch.cat(parts, 2)[0]
        return attended.transpose(0, 1).flatten(1)
