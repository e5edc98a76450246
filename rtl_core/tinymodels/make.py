"""Train the tiny models: a common tokenizer, a training per model, fp16 folders, and checksums of all files.

Training is supervised, on generated train specifications, with the loss on the answer only. Hidden matrices
use Muon (orthogonalised momentum), which learns to copy in far fewer steps than AdamW; embeddings and norms
use AdamW. There is no validation during training, no checkpoint, and no mixed precision (no gain at this
size on a CPU).
"""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from transformers import (
    GenerationConfig,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from rtl_core.tinymodels import MODEL_NAMES, ModelName
from rtl_core.tinymodels.corpus import (
    AGENT,
    HARD_STUDENT,
    HARD_TEACHER,
    READER,
    STUDENT,
    TEACHER,
    Phase,
    draw_chat,
)
from rtl_core.tinymodels.tokenizer import AGENT_TEMPLATE, CHAT_TEMPLATE, make_tokenizer
from rtl_grader.prompts import Message

CHECKSUMS = "checksums.json"
HEAD = 32
BATCH = 24
MICRO_BATCHES = 2
WARM_UP = 50
FINAL_RATE = 0.02
CLIP = 1.0


@dataclass(frozen=True)
class Shape:
    """Size of a Qwen3 model with heads of size 32 and tied embeddings."""

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


@dataclass(frozen=True)
class Recipe:
    """Recipe of a model: size, training text, number of steps, and the seed of weights and data."""

    shape: Shape
    phases: tuple[Phase, ...]
    steps: int
    seed: int = 0
    start: ModelName | None = None
    """The model whose weights it starts from; None: random weights."""
    rates: Rates = field(default_factory=Rates)
    chat_template: str = CHAT_TEMPLATE


_SMALL = Shape(hidden=96, heads=3, kv_heads=1, inner=288)
_MEDIUM = Shape(hidden=128, heads=4, kv_heads=2, inner=384)
_ONWARD = Rates(matrices=0.01, rest=2e-3)
"""For a model that starts from another one."""
RECIPES: dict[ModelName, Recipe] = {
    "student": Recipe(_SMALL, STUDENT, steps=1400),
    "reader": Recipe(_SMALL, READER, steps=300, start="student", rates=_ONWARD),
    "agent": Recipe(
        _SMALL, AGENT, steps=300, start="student", rates=_ONWARD, chat_template=AGENT_TEMPLATE
    ),
    "teacher": Recipe(_MEDIUM, TEACHER, steps=2000),
    "hard-teacher": Recipe(_MEDIUM, HARD_TEACHER, steps=1200, start="teacher", rates=_ONWARD),
    "hard-student": Recipe(
        _MEDIUM, HARD_STUDENT, steps=400, start="hard-teacher", rates=_ONWARD
    ),
}


def make_models(
    output: Path,
    seconds: float,
    names: Sequence[ModelName],
    report: Callable[[ModelName, int, float, float], None],
) -> dict[ModelName, int]:
    """Write a folder for each model and `output/checksums.json`; return the number of steps of each training.

    A training stops after `seconds` at the latest. `report` is called every 50 steps with the model's name,
    the step, the loss per answer token and the seconds so far.
    """
    tokenizer = make_tokenizer()
    steps: dict[ModelName, int] = {}
    for name in names:
        recipe = RECIPES[name]
        tokenizer.chat_template = recipe.chat_template
        if recipe.start is None:
            model = new_model(recipe, tokenizer)
        else:
            model = Qwen3ForCausalLM.from_pretrained(output / recipe.start, dtype=torch.float32)
        steps[name] = pretrain(model, tokenizer, recipe, seconds, partial(report, name))
        folder = output / name
        model.half().save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        for path in folder.iterdir():
            path.chmod(0o644)
    (output / CHECKSUMS).write_text(json.dumps(checksums_of(output), indent=2) + "\n")
    return steps


def checksums_of(folder: Path) -> dict[str, str]:
    """Return the SHA-256 (hex) of every file of all models, by path relative to `folder`."""
    paths = sorted(path for name in MODEL_NAMES for path in (folder / name).rglob("*"))
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in filter(Path.is_file, paths)
    }


def new_model(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """Return a freshly initialised float32 model for this tokenizer."""
    torch.manual_seed(recipe.seed)
    shape = recipe.shape
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
    recipe: Recipe,
    seconds: float,
    report: Callable[[int, float, float], None],
) -> int:
    """Train `model` in place for the recipe's steps, or `seconds` if that is less; return the number of steps.

    The learning rate decays linearly over whichever limit comes first. With infinite `seconds` the result
    depends only on the arguments, the libraries and the kind of processor.
    """
    rng = random.Random(recipe.seed)
    optimizers = _optimizers(model, recipe.rates)
    peaks = (recipe.rates.matrices, recipe.rates.rest)
    start, step = time.monotonic(), 0
    model.train()
    while True:
        elapsed = time.monotonic() - start
        progress = max(step / recipe.steps, elapsed / seconds)
        if progress >= 1:
            break
        scale = min(1.0, (step + 1) / WARM_UP) * max(FINAL_RATE, 1 - progress)
        for optimizer, peak in zip(optimizers, peaks, strict=True):
            optimizer.param_groups[0]["lr"] = peak * scale
        chats = [draw_chat(rng, recipe.phases, progress) for _ in range(BATCH)]
        pairs = [_encoded(tokenizer, *chat) for chat in chats]
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
    muon = torch.optim.Muon(
        matrices, lr=rates.matrices, weight_decay=0.05, adjust_lr_fn="original"
    )
    adam = torch.optim.AdamW(rest, lr=rates.rest, betas=(0.9, 0.95), weight_decay=0.01)
    return [muon, adam]


def _encoded(
    tokenizer: PreTrainedTokenizerFast, messages: list[Message], answer: str
) -> tuple[list[int], list[int]]:
    """Return prompt ids in chat format, and answer ids with the end token."""
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    return tokenizer.encode(text), [*tokenizer.encode(answer), tokenizer.eos_token_id]


def _accumulate(model: Qwen3ForCausalLM, pairs: list[tuple[list[int], list[int]]]) -> float:
    """Add gradients of the batch's mean loss per answer token, in micro-batches of similar length; return that loss."""
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
        is_answer_BT = targets_BT >= 0
        logits_AV = model.lm_head(hidden_BTH[is_answer_BT])
        loss = F.cross_entropy(logits_AV, targets_BT[is_answer_BT], reduction="sum")
        (loss / answer_tokens).backward()
        total += loss.item()
    return total / answer_tokens
