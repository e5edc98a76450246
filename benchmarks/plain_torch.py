"""The other side of `benchmarks.localtinker`: the same work by plain transformers, peft and torch, in a
separate process."""

import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

RANK = 32
MICRO_TOKENS = 512
"""Largest number of tokens in a pass of a train step that is not given the whole batch."""


class Plain:
    """transformers and torch with their defaults. Methods take a batch by its name in `prepare`, and return
    its number of tokens."""

    def __init__(self, model: Path, dtype: str, threads: int) -> None:
        import torch
        from transformers import AutoTokenizer

        torch.set_num_threads(threads)
        self._dtype = getattr(torch, dtype)
        self._path = model
        self._tokenizer: Any = AutoTokenizer.from_pretrained(model)
        self._batches: dict[str, dict[str, Any]] = {}

    @cached_property
    def _model(self) -> Any:
        return self._loaded().eval()

    @cached_property
    def _trained(self) -> tuple[Any, Any]:
        """A model with LoRA on all its linear layers, and its optimizer."""
        import torch
        from peft import LoraConfig, get_peft_model

        base = self._loaded()
        linear = [
            name for name, module in base.named_modules() if isinstance(module, torch.nn.Linear)
        ]
        lora: Any = get_peft_model(
            base, LoraConfig(r=RANK, lora_alpha=32, target_modules=linear)
        )
        return lora, torch.optim.AdamW(
            [p for p in lora.parameters() if p.requires_grad], lr=1e-4
        )

    def _loaded(self) -> Any:
        from transformers import AutoModelForCausalLM

        return AutoModelForCausalLM.from_pretrained(self._path, dtype=self._dtype)

    def chat_prompts(self, count: int) -> tuple[list[list[int]], int]:
        """Prompts of held-out starter problems, and the end token."""
        from rtl_core.prompting.budget import build_prompt
        from rtl_core.prompting.chat import Chat
        from rtl_core.starter import starter_problems

        problems, chat = starter_problems("heldout", count, seed=0), Chat(self._tokenizer)
        return [
            build_prompt(p, chat, "bare", 1024).tokens_P for p in problems
        ], self._tokenizer.eos_token_id

    def prepare(
        self,
        name: str,
        rows: Sequence[list[int]],
        *,
        left: bool = False,
        **others: Sequence[list],
    ) -> None:
        """Keep a batch as padded tensors: rows of tokens, and others of the same lengths. Pads with 0 at
        the end, or on the left."""
        import torch
        from torch.nn.utils.rnn import pad_sequence

        def padded(rows: Sequence[list]) -> Any:
            tensors = [torch.tensor(row) for row in rows]
            return pad_sequence(
                tensors, batch_first=True, padding_side="left" if left else "right"
            )

        mask = padded([[1] * len(row) for row in rows])
        self._batches[name] = {
            "ids": padded(rows),
            "mask": mask,
            **{key: padded(v) for key, v in others.items()},
        }

    def generate(self, name: str, tokens: int, eos: int | None) -> int:
        """Sample `tokens` tokens a row, or at most that many up to and including `eos`."""
        batch = self._batches[name]
        least = {"min_new_tokens": tokens} if eos is None else {}
        out = self._model.generate(
            batch["ids"],
            attention_mask=batch["mask"],
            max_new_tokens=tokens,
            **least,
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            eos_token_id=eos,
            pad_token_id=0 if eos is None else eos,
        )[:, batch["ids"].shape[1] :]
        if eos is None:
            return out.numel()
        ended = (out == eos).int()
        return int(((ended.cumsum(1) - ended) == 0).sum())

    def score(self, name: str) -> int:
        """Log-probabilities of all tokens."""
        import torch

        ids, mask = self._batches[name]["ids"], self._batches[name]["mask"]
        with torch.inference_mode():
            logits = self._model(input_ids=ids, attention_mask=mask, use_cache=False).logits[
                :, :-1
            ]
            torch.log_softmax(logits, -1).gather(-1, ids[:, 1:, None])
        return int(mask.sum())

    def train(self, name: str, whole: bool) -> int:
        """A step of peft's LoRA with AdamW: the whole batch at once, or in passes of `MICRO_TOKENS`."""
        import torch

        lora, optimizer = self._trained
        batch = self._batches[name]
        rows = len(batch["ids"]) if whole else max(1, MICRO_TOKENS // batch["ids"].shape[1])
        parts = [
            batch[key].split(rows)
            for key in ("ids", "mask", "targets", "logprobs", "advantages")
        ]
        for ids, mask, targets, q, advantages in zip(*parts, strict=True):
            logits = lora(input_ids=ids, attention_mask=mask, use_cache=False).logits.float()
            logp = torch.log_softmax(logits, -1).gather(-1, targets[..., None])[..., 0]
            (-torch.exp(logp - q) * advantages).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        return int(batch["mask"].sum())


class PlainProcess:
    """`Plain` in a separate process, so that its imports do not burden the client of the service."""

    def __init__(self, *given: Any) -> None:
        self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _open, given)

    def ask(self, method: str, *given: Any, **named: Any) -> tuple[float, Any]:
        """Call a method of `Plain`; return (seconds, result)."""
        return self._pool.submit(_timed, method, given, named).result()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def _open(*given: Any) -> None:
    global _plain
    _plain = Plain(*given)


def _timed(method: str, given: tuple, named: dict[str, Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    result = getattr(_plain, method)(*given, **named)
    return time.perf_counter() - started, result
