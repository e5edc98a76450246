"""Attention to long prompts, against its definition in float64; the limits within which it may be used."""

from __future__ import annotations

import math

import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen3Config

from rtl_core.localtinker.attention import LARGEST_SCORE, causal_attention
from rtl_core.localtinker.decoder import DenseDecoder

SHAPE = {
    "vocab_size": 400,
    "hidden_size": 96,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "initializer_range": 0.1,
}


def definition(q_BLND, k_BLMD, v_BLMD):
    """softmax(q k^T / sqrt(D)) v below the diagonal, in float64."""
    group = q_BLND.shape[2] // k_BLMD.shape[2]
    q, k, v = (x.double().transpose(1, 2) for x in (q_BLND, k_BLMD, v_BLMD))
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])
    scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -torch.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("heads", [(3, 1), (4, 4), (6, 2)])
@pytest.mark.parametrize("length", [1, 64, 255, 256, 257, 700])
def test_it_is_attention(heads, length):
    torch.manual_seed(length)
    q = torch.randn(2, length, heads[0], 16)
    k, v = (torch.randn(2, length, heads[1], 16) for _ in range(2))
    torch.testing.assert_close(
        causal_attention(q, k, v, bounded=True).double(), definition(q, k, v), atol=2e-6, rtol=1e-5
    )


def test_the_largest_scores_that_are_allowed_keep_their_precision():
    torch.manual_seed(0)
    q, k = (torch.nn.functional.normalize(torch.randn(1, 600, 2, 16), dim=-1) for _ in range(2))
    k[0, 300] = q[0, 500]  # the largest score that is allowed
    k[0, :6] = -q[0, 5]  # and the smallest, for all keys that a query sees
    scale = math.sqrt(LARGEST_SCORE * math.sqrt(16))
    q, k = q * scale, k * scale
    v = torch.randn(1, 600, 2, 16)
    torch.testing.assert_close(
        causal_attention(q, k, v, bounded=True).double(), definition(q, k, v), atol=1e-4, rtol=1e-4
    )


def flash_kernels_of_a_long_prompt(model) -> int:
    """How often torch's own attention runs; the logits are transformers' own either way."""
    model = model.eval()
    decoder = DenseDecoder(model, {}, 1.0, merge=False)
    tokens = torch.randint(3, 400, (2, 300))
    with torch.inference_mode():
        with profile(activities=[ProfilerActivity.CPU]) as recorded:
            logits = decoder.logits(decoder.hidden(tokens).flatten(0, 1))
        torch.testing.assert_close(logits, model(input_ids=tokens).logits.flatten(0, 1), atol=2e-4, rtol=1e-3)
    return sum(event.count for event in recorded.key_averages() if "scaled_dot_product" in event.key)


def test_only_models_with_bounded_scores_use_it():
    torch.manual_seed(0)
    bounded = AutoModelForCausalLM.from_config(Qwen3Config(**SHAPE, head_dim=16))
    assert flash_kernels_of_a_long_prompt(bounded) == 0
    assert flash_kernels_of_a_long_prompt(AutoModelForCausalLM.from_config(LlamaConfig(**SHAPE))) > 0
    # One layer whose weights allow a score of 4 * 4 * sqrt(16) = 64.
    bounded.model.layers[1].self_attn.q_norm.weight.data[3] = 4.0
    bounded.model.layers[1].self_attn.k_norm.weight.data[5] = -4.0
    assert flash_kernels_of_a_long_prompt(bounded) > 0
