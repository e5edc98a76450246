"""How sequences are cut into passes: padded to one length, or, where they begin alike, laid out so that what they share is computed once.

The answers of a group follow one prompt, and what scores them follows one hint: with four answers to a prompt of 250 tokens that are
80 tokens long, 570 rows take the place of 1320. Under causal attention no shared row sees what follows it, so nothing changes but
the time, and the gradient of a shared row is the sum of the gradients of its copies.

Shapes: N rows of a pass, D head size, heads as they come.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK = 512  # queries whose mask is there at once: it has a number for each of their keys
LEAST_PREFIX = 8  # tokens that are worth sharing: fewer save less than attention in two parts costs
Tokens = Sequence[int] | np.ndarray


def padded_passes(sequences: Sequence[Tokens], budget: int) -> list[list[int]]:
    """The numbers of the sequences of each pass: by length, of at most `budget` padded tokens, or one sequence."""
    passes: list[list[int]] = []
    for number in sorted(range(len(sequences)), key=lambda i: (-len(sequences[i]), i)):
        if passes and (len(passes[-1]) + 1) * len(sequences[passes[-1][0]]) <= budget:
            passes[-1].append(number)
        else:
            passes.append([number])
    return passes


def padded(sequences: Sequence[Tokens]) -> Tensor:
    """Right-padded tokens [B, L]."""
    tokens_BL = np.zeros((len(sequences), max(map(len, sequences))), np.int64)
    for row, tokens in zip(tokens_BL, sequences, strict=True):
        row[: len(tokens)] = tokens
    return torch.from_numpy(tokens_BL)


@dataclass(frozen=True)
class Family:
    """Sequences, by their numbers, that share their first `prefix` tokens; each has at least one more of its own."""

    members: tuple[int, ...]
    prefix: int

    def saved(self) -> int:
        """Rows less than without sharing."""
        return (len(self.members) - 1) * self.prefix


def families_of(sequences: Sequence[Tokens]) -> list[Family]:
    """The sequences in families, so that neighbours in alphabetical order merge, those with the longest common beginning first,
    for as long as that saves rows."""
    arrays = [np.asarray(sequence) for sequence in sequences]
    order = sorted(range(len(arrays)), key=lambda i: arrays[i].tolist())
    alike = [common_length(arrays[a], arrays[b]) for a, b in itertools.pairwise(order)]
    # Of each place, the family that it is part of, in a shared list.
    runs = [[Family((i,), len(arrays[i]) - 1)] for i in order]
    for place in sorted(range(len(alike)), key=lambda place: (-alike[place], place)):
        (left,), (right,) = runs[place], runs[place + 1]
        both = Family(left.members + right.members, min(left.prefix, right.prefix, alike[place]))
        if both.prefix >= LEAST_PREFIX and both.saved() > left.saved() + right.saved():
            runs[place][0] = both
            first = place + 1
            for number in range(first, first + len(right.members)):
                runs[number] = runs[place]
    found = list({id(run): run[0] for run in runs}.values())
    return [family if len(family.members) > 1 else Family(family.members, 0) for family in found]


def packed_passes(sequences: Sequence[Tokens], budget: int) -> list[list[int]]:
    """The numbers of the sequences of each pass.

    Of at most `budget` rows; or one sequence that is longer; or several of a family, of no more rows than twice the longest of them
    and eight budgets: a long prompt is worth a larger pass.
    """
    blocks: list[tuple[int, list[int]]] = []
    for family in families_of(sequences):
        own = {i: len(sequences[i]) - family.prefix for i in family.members}
        most = max(budget, min(2 * (family.prefix + max(own.values())), 8 * budget))
        count = 1 if family.prefix else len(own)
        while count < len(own) and max(map(sum, _shares(list(own.values()), count))) + family.prefix > most:
            count += 1
        left = list(family.members)
        for lengths in _shares(list(own.values()), count):
            blocks.append((family.prefix + sum(lengths), left[: len(lengths)]))
            left = left[len(lengths) :]
    passes: list[list[int]] = []
    filled = 0
    for rows, part in sorted(blocks, key=lambda block: (-block[0], block[1])):
        if passes and filled + rows <= budget:
            passes[-1] += part
            filled += rows
        else:
            passes.append(list(part))
            filled = rows
    return passes


def _shares(lengths: list[int], count: int) -> list[list[int]]:
    """The lengths in `count` parts of nearly equal numbers, in their order."""
    bounds = [len(lengths) * i // count for i in range(count + 1)]
    return [lengths[start:end] for start, end in itertools.pairwise(bounds)]


def common_length(a: Tokens, b: Tokens) -> int:
    """How many tokens two sequences begin with alike."""
    length = min(len(a), len(b))
    differs = np.flatnonzero(np.asarray(a[:length]) != np.asarray(b[:length]))
    return int(differs[0]) if len(differs) else length


@dataclass(frozen=True)
class Span:
    """The rows of a family: its prefix (none where nothing is shared), then what each member has of its own."""

    prefix: slice
    own: tuple[slice, ...]


class Layout:
    """The rows of a pass over some sequences."""

    def __init__(self, sequences: Sequence[Tokens]) -> None:
        self.spans: list[Span] = []
        self.rows: list[np.ndarray] = [np.zeros(0, np.int64)] * len(sequences)
        """Of each sequence, the row of each of its positions."""
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
            own = [add(member[family.prefix :], family.prefix) for member in members]
            self.spans.append(Span(prefix, tuple(own)))
            for i, rows in zip(family.members, own, strict=True):
                self.rows[i] = np.r_[prefix, rows]
        self.tokens_N = torch.from_numpy(np.concatenate(tokens).astype(np.int64))
        self.positions_N = torch.from_numpy(np.concatenate(positions))

    @property
    def longest(self) -> int:
        return max(map(len, self.rows))

    @property
    def keys(self) -> int:
        """Rows of keys that attention holds beside those of the pass: the copies of each prefix with its members' own."""
        spans = [span for span in self.spans if span.prefix.stop > span.prefix.start]
        return sum(rows.stop - rows.start + span.prefix.stop - span.prefix.start for span in spans for rows in span.own)

    def attention(self, q_NHD: Tensor, k_NHD: Tensor, v_NHD: Tensor) -> Tensor:
        """softmax(q k^T / sqrt(D)) v, [N, heads D]: each row sees the rows of its sequence up to itself."""
        q, k, v = (states.transpose(0, 1)[None] for states in (q_NHD, k_NHD, v_NHD))
        grouped = q.shape[1] != k.shape[1]
        parts = []
        for span in self.spans:
            shared = span.prefix
            alone = shared.start == shared.stop
            for rows in span.own if alone else (shared,):
                part = F.scaled_dot_product_attention(
                    q[:, :, rows], k[:, :, rows], v[:, :, rows], is_causal=True, enable_gqa=grouped
                )
                parts.append(part)
            for rows in () if alone else span.own:
                keys, values = (torch.cat((states[:, :, shared], states[:, :, rows]), 2) for states in (k, v))
                for start in range(rows.start, rows.stop, BLOCK):
                    end = min(start + BLOCK, rows.stop)
                    seen = keys.shape[2] - (rows.stop - end)
                    mask = torch.ones(end - start, seen, dtype=torch.bool, device=q.device).tril_(seen - (end - start))
                    part = F.scaled_dot_product_attention(
                        q[:, :, start:end], keys[:, :, :seen], values[:, :, :seen], attn_mask=mask, enable_gqa=grouped
                    )
                    parts.append(part)
        return torch.cat(parts, 2)[0].transpose(0, 1).reshape(len(q_NHD), -1)
