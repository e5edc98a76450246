"""Packed layouts store common prefixes once and keep every position."""

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from localtinker import packing
from localtinker.packing import MIN_PREFIX, Family, Layout, families_of, packed_passes


def group(rng, prompt, lengths):
    return [prompt + [rng.randrange(100, 200) for _ in range(length)] for length in lengths]


def random_groups(seed):
    """Groups whose prompts share a prefix, in random order, with equal sequences and one that is a prefix of another."""
    rng = random.Random(seed)
    system = [rng.randrange(50) for _ in range(rng.choice([0, 5, 12]))]
    sequences = []
    for _ in range(rng.randrange(1, 5)):
        prompt = system + [rng.randrange(50, 100) for _ in range(rng.randrange(1, 40))]
        sequences += group(
            rng, prompt, [rng.randrange(1, 20) for _ in range(rng.randrange(1, 5))]
        )
    sequences += [list(sequences[0]), sequences[0][: len(sequences[0]) // 2 + 1], [7]]
    rng.shuffle(sequences)
    return sequences


def test_groups_are_found_even_if_prompts_or_answers_overlap():
    rng = random.Random(0)
    fence = [1] * 10  # every answer starts with this, and two of one group share more
    first = group(rng, [5] * 30 + [6] * 40 + fence, [9, 20, 4, 7])
    first[3] = first[0][:85] + first[3][80:]
    second = group(rng, [5] * 30 + [8] * 50 + fence, [9, 3])
    families = families_of([first[0], second[0], first[1], first[2], second[1], first[3]])
    assert {frozenset(family.members): family.prefix for family in families} == {
        frozenset({0, 2, 3, 5}): 80,
        frozenset({1, 4}): 90,
    }


def test_a_short_common_prefix_is_not_shared():
    common = list(range(MIN_PREFIX - 1))
    assert families_of([[*common, 50, 51], [*common, 60, 61]]) == [
        Family((0,), 0),
        Family((1,), 0),
    ]


@pytest.mark.parametrize("seed", range(20))
def test_every_position_of_every_sequence_is_in_the_layout(seed):
    sequences = random_groups(seed)
    layout = Layout(sequences)
    for sequence, rows in zip(sequences, layout.rows, strict=True):
        assert layout.tokens_N[rows].tolist() == sequence
        assert layout.positions_N[rows].tolist() == list(range(len(sequence)))
    assert set(np.concatenate(layout.rows)) == set(range(len(layout.tokens_N)))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("block", [3, 512])
def test_attention_equals_that_of_each_sequence_alone(seed, block, monkeypatch):
    monkeypatch.setattr(packing, "BLOCK", block)
    sequences = random_groups(seed)
    layout = Layout(sequences)
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (
        torch.randn(len(layout.tokens_N), heads, 8, generator=generator) for heads in (4, 2, 2)
    )
    mine = layout.attention(q, k, v)
    for rows in layout.rows:
        alone = (states[rows].transpose(0, 1)[None] for states in (q, k, v))
        theirs = (
            F.scaled_dot_product_attention(*alone, is_causal=True, enable_gqa=True)[0]
            .transpose(0, 1)
            .flatten(1)
        )
        torch.testing.assert_close(mine[rows], theirs, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("budget", [1, 64, 10_000])
def test_passes_contain_every_sequence_once_and_are_bounded(seed, budget):
    sequences = random_groups(seed)
    passes = packed_passes(sequences, budget)
    assert sorted(i for part in passes for i in part) == list(range(len(sequences)))
    for part in passes:
        rows = len(Layout([sequences[i] for i in part]).tokens_N)
        longest = max(len(sequences[i]) for i in part)
        assert rows <= max(budget, longest, min(2 * longest, 8 * budget))


def test_at_least_two_answers_to_a_long_prompt_share_a_pass():
    rng = random.Random(1)
    sequences = group(rng, [3] * 100, [100] * 8)
    assert [len(part) for part in packed_passes(sequences, 64)] == [3, 3, 2]
    assert [len(part) for part in packed_passes(sequences[:4], 64)] == [2, 2]
