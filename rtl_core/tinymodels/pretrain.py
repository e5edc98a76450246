"""Pre-training of the tiny models from scratch: supervised, on generated train specifications, loss on the answer only.

Hidden matrices go to Muon (orthogonalised momentum), which learns to copy in far fewer steps than AdamW; embeddings and
norms to AdamW. Left out: validation during training, checkpoints, mixed precision (no gain at this size on a CPU).
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from rtl_core.prompting.templates import Message
from rtl_core.tinymodels.corpus import Phase, draw_chat

HEAD = 32
BATCH = 24
MICRO_BATCHES = 2
WARM_UP = 50
FINAL_RATE = 0.02
CLIP = 1.0


@dataclass(frozen=True)
class Shape:
    """Size of a model of the Qwen3 architecture; heads of 32, embeddings tied."""

    hidden: int
    heads: int
    kv_heads: int
    inner: int
    layers: int = 3


@dataclass(frozen=True)
class Rates:
    """Peak learning rates of Muon (matrices) and AdamW (embeddings, norms)."""

    matrices: float = 0.02
    rest: float = 4e-3


def new_model(shape: Shape, tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    """A freshly initialised float32 model for this tokenizer."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=(len(tokenizer) + 31) // 32 * 32,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=HEAD,
        intermediate_size=shape.inner,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    model = Qwen3ForCausalLM(config).float()
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, do_sample=True
    )
    return model


def pretrain(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    phases: Sequence[Phase],
    *,
    steps: int,
    seed: int,
    seconds: float = math.inf,
    rates: Rates = Rates(),
    report: Callable[[int, float, float], None] = lambda step, loss, elapsed: None,
) -> int:
    """Train `model` in place for `steps`, or for `seconds` if they are over before; returns the number of steps taken.

    The learning rate falls linearly over whichever limit is nearer, so that a short training ends as calmly as a long
    one. Without `seconds` the result depends on nothing but the arguments, the libraries and the kind of processor.
    `report(step, loss per answer token, seconds so far)` is called every 50 steps.
    """
    rng = random.Random(seed)
    optimizers = _optimizers(model, rates)
    start, step = time.monotonic(), 0
    model.train()
    while (progress := max(step / steps, (elapsed := time.monotonic() - start) / seconds)) < 1:
        scale = min(1.0, (step + 1) / WARM_UP) * max(FINAL_RATE, 1 - progress)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * scale
        pairs = [_encoded(tokenizer, *draw_chat(rng, phases, progress)) for _ in range(BATCH)]
        loss = _accumulate(model, pairs)
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        for optimizer in optimizers:
            optimizer.step()
        model.zero_grad(set_to_none=True)
        if step % 50 == 0:
            report(step, loss, elapsed)
        step += 1
    model.eval()
    return step


def _optimizers(model: Qwen3ForCausalLM, rates: Rates) -> list[torch.optim.Optimizer]:
    matrices: list[torch.nn.Parameter] = []
    rest: list[torch.nn.Parameter] = []
    for name, parameter in model.named_parameters():
        (matrices if parameter.dim() == 2 and "embed" not in name else rest).append(parameter)
    muon = torch.optim.Muon(matrices, lr=rates.matrices, weight_decay=0.05, adjust_lr_fn="original")
    adam = torch.optim.AdamW(rest, lr=rates.rest, betas=(0.9, 0.95), weight_decay=0.01)
    for optimizer, peak in ((muon, rates.matrices), (adam, rates.rest)):
        for group in optimizer.param_groups:
            group["peak"] = peak
    return [muon, adam]


def _encoded(tokenizer: PreTrainedTokenizerFast, messages: list[Message], answer: str) -> tuple[list[int], list[int]]:
    """Prompt ids as chat, answer ids with the end token."""
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    return tokenizer.encode(text), [*tokenizer.encode(answer), tokenizer.eos_token_id]


def _accumulate(model: Qwen3ForCausalLM, pairs: list[tuple[list[int], list[int]]]) -> float:
    """Gradients of the mean loss per answer token over the batch, in micro-batches of like length; returns that loss."""
    pairs = sorted(pairs, key=lambda pair: len(pair[0]) + len(pair[1]))
    answer_tokens = sum(len(answer) for _, answer in pairs)
    size = len(pairs) // MICRO_BATCHES
    total = 0.0
    for first in range(0, len(pairs), size):
        micro = pairs[first : first + size]
        length = max(len(prompt) + len(answer) for prompt, answer in micro) - 1
        inputs_BT = torch.zeros(len(micro), length, dtype=torch.long)
        targets_BT = torch.full((len(micro), length), -100)
        for row, (prompt, answer) in enumerate(micro):
            tokens = prompt + answer
            inputs_BT[row, : len(tokens) - 1] = torch.tensor(tokens[:-1])
            targets_BT[row, len(prompt) - 1 : len(tokens) - 1] = torch.tensor(answer)
        hidden_BTH = model.model(input_ids=inputs_BT, use_cache=False).last_hidden_state
        asked_BT = targets_BT >= 0
        loss = F.cross_entropy(model.lm_head(hidden_BTH[asked_BT]), targets_BT[asked_BT], reduction="sum")
        (loss / answer_tokens).backward()
        total += loss.item()
    return total / answer_tokens
