"""Log-probabilities of prompt tokens: plain, top-k, of chosen ids, and alternatives drawn at every position.

Position i of a prompt of P tokens is predicted from position i - 1; position 0 has no context and is never scored.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from rtl_core.localtinker.sampling import SampleRequest
from rtl_core.localtinker.wire import MISSING_LOGPROB, PromptScores

_LOGIT_BUDGET = 2**24  # floats of logits alive at once: 64 MiB


class Head(Protocol):
    """What turns final hidden states [..., H] into float32 logits [..., V]."""

    vocab_size: int

    def logits(self, hidden: Tensor) -> Tensor: ...


def score_prompt(head: Head, hidden_PH: Tensor, request: SampleRequest) -> PromptScores:
    """Everything that `request` asks about its prompt, from the final hidden states of its P positions."""
    options, length = request.prompt_options, len(request.prompt)
    scores = PromptScores()
    if options.logprobs:
        scores.logprobs_P = np.full(length, np.nan, np.float32)
    if options.topk:
        scores.topk_ids_PK = np.zeros((length, options.topk), np.int32)
        scores.topk_logprobs_PK = np.full((length, options.topk), MISSING_LOGPROB, np.float32)
    first = 1 if options.last_n is None else length - options.last_n
    if length > 1 and (options.logprobs or options.topk):
        _score_tokens(head, hidden_PH, request, scores, max(first, 1))
    if options.targets_RK is not None:
        values = _score_targets(head, hidden_PH, options.targets_RK)
        scores.targets = (values, options.target_layout)
    if options.alternatives:
        scores.alternatives = _draw_alternatives(head, hidden_PH, request)
    return scores


def _chunks(head: Head, first: int, length: int) -> list[tuple[int, int]]:
    """Ranges of prompt positions whose logits fit the budget."""
    step = max(1, _LOGIT_BUDGET // head.vocab_size)
    return [(start, min(start + step, length)) for start in range(first, length, step)]


def _score_tokens(head: Head, hidden_PH: Tensor, request: SampleRequest, scores: PromptScores, first: int) -> None:
    prompt = torch.tensor(request.prompt, device=hidden_PH.device)
    for start, end in _chunks(head, first, len(request.prompt)):
        logits = head.logits(hidden_PH[start - 1 : end - 1])
        logsumexp = logits.logsumexp(-1)
        if scores.logprobs_P is not None:
            picked = logits.gather(1, prompt[start:end, None])[:, 0]
            scores.logprobs_P[start:end] = (picked - logsumexp).cpu().numpy()
        if scores.topk_ids_PK is not None and scores.topk_logprobs_PK is not None:
            top = logits.topk(scores.topk_ids_PK.shape[1], -1)
            scores.topk_ids_PK[start:end] = top.indices.cpu().numpy()
            scores.topk_logprobs_PK[start:end] = (top.values - logsumexp[:, None]).cpu().numpy()


def _score_targets(head: Head, hidden_PH: Tensor, targets_RK: np.ndarray) -> np.ndarray:
    """log p of `targets_RK[i]` at position i + 1, 0 where the target is -1."""
    values = np.zeros(targets_RK.shape, np.float32)
    asked = np.flatnonzero((targets_RK >= 0).any(1))
    if asked.size == 0:
        return values
    for start, end in _chunks(head, int(asked[0]) + 1, len(targets_RK) + 1):
        rows = slice(start - 1, end - 1)
        logits = head.logits(hidden_PH[rows])
        ids = torch.from_numpy(np.maximum(targets_RK[rows], 0)).to(logits.device)
        picked = logits.gather(1, ids) - logits.logsumexp(-1, keepdim=True)
        values[rows] = np.where(targets_RK[rows] >= 0, picked.cpu().numpy(), 0.0)
    return values


def _draw_alternatives(head: Head, hidden_PH: Tensor, request: SampleRequest) -> tuple[np.ndarray, np.ndarray]:
    """k independent draws at every position after the first, at the request's temperature, and their logprobs."""
    count, length = request.prompt_options.alternatives, len(request.prompt)
    temperature = request.options.temperature
    tokens = np.zeros((length - 1, count), np.int32)
    logprobs = np.zeros((length - 1, count), np.float32)
    entropy = None if request.seed is None else [request.seed & (2**64 - 1), 0xA17]
    rng = np.random.default_rng(entropy)
    for start, end in _chunks(head, 1, length):
        rows = slice(start - 1, end - 1)
        logits = head.logits(hidden_PH[rows])
        u = torch.from_numpy(rng.random((end - start, count))).to(logits.device)
        if temperature > 0:
            cdf = torch.softmax(logits / temperature, -1).cumsum(-1, dtype=torch.float64)
            drawn = torch.searchsorted(cdf, u * cdf[:, -1:], right=True).clamp_(max=logits.shape[1] - 1)
        else:
            drawn = logits.argmax(-1, keepdim=True).expand(-1, count)
        tokens[rows] = drawn.cpu().numpy()
        logprobs[rows] = (logits.gather(1, drawn) - logits.logsumexp(-1, keepdim=True)).cpu().numpy()
    return tokens, logprobs
