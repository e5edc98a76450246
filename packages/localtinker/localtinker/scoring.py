"""Scores of prompts: log-probabilities of the tokens, top-k, and of given ids.

Position i of a prompt of P tokens is predicted from position i - 1. Position 0 has no context and is never scored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from localtinker.packing import chunks
from localtinker.sampling import SampleRequest
from localtinker.wire import MISSING_LOGPROB, PromptScores

LOGIT_BUDGET = 2**18  # logits in memory at once: 1 MiB, which fits into a core's cache
# Positions of a chunk: with fewer the matrix product is slow, whatever the vocabulary.
_MIN_ROWS = 128


class Head(Protocol):
    """Maps final hidden states [rows, H] to float32 logits [rows, V]."""

    vocab_size: int

    def logits(self, hidden: Tensor) -> Tensor: ...


def score_prompts(
    head: Head, hidden_NH: Tensor, rows: Sequence[np.ndarray], requests: Sequence[SampleRequest]
) -> None:
    """Fill `scores` of each request with the scores it asks for.

    `rows[i]` are the rows of `hidden_NH` with the positions of request i's prompt; requests may share rows.
    Token log-probabilities of all requests are computed together, with one row of logits for each distinct
    row.
    """
    for request in requests:
        request.scores = PromptScores()
        if request.prompt_options.logprobs:
            length = len(request.prompt)
            request.scores.logprobs_P = np.full(length, np.nan, np.float32)
    _score_tokens(head, hidden_NH, rows, requests)
    for rows_P, request in zip(rows, requests, strict=True):
        options = request.prompt_options
        scores = request.scores
        assert scores is not None
        if not (options.topk or options.targets_RK is not None):
            continue
        hidden_PH = hidden_NH[torch.from_numpy(rows_P).to(hidden_NH.device)]
        if options.topk:
            scores.topk = _score_topk(head, hidden_PH, request)
        if options.targets_RK is not None:
            values_RK = _score_targets(head, hidden_PH, options.targets_RK)
            scores.targets = values_RK, options.target_cells


def gather_logprobs(logits: Tensor, targets: Tensor) -> Tensor:
    """Return log p of targets [..., K] under logits [..., V], in float32."""
    logits = logits.float()
    return logits.gather(-1, targets) - logits.logsumexp(-1, keepdim=True)


def _first_scored(request: SampleRequest) -> int:
    last_n = request.prompt_options.last_n
    if last_n is None:
        return 1
    return max(len(request.prompt) - last_n, 1)


def _chunks(head: Head, first: int, length: int) -> list[tuple[int, int]]:
    """Return ranges of positions whose logits fit into the budget."""
    return chunks(first, length, max(_MIN_ROWS, LOGIT_BUDGET // head.vocab_size))


def _score_tokens(
    head: Head, hidden_NH: Tensor, rows: Sequence[np.ndarray], requests: Sequence[SampleRequest]
) -> None:
    """Set the log-probability of each scored prompt token, for all requests together, in chunks that fit
    into the budget."""
    requested = [
        (request, rows_P, _first_scored(request))
        for request, rows_P in zip(requests, rows, strict=True)
        if request.prompt_options.logprobs and len(request.prompt) > 1
    ]
    if not requested:
        return
    contexts, texts = [], []
    for request, rows_P, first in requested:
        contexts.append(rows_P[first - 1 : -1])
        texts.append(request.prompt[first:])
    before = np.concatenate(contexts)
    targets = np.concatenate(texts)
    distinct, which = np.unique(before, return_inverse=True)
    order = np.argsort(which, kind="stable")
    which = which[order]
    targets = targets[order]
    device = hidden_NH.device
    logprobs = np.empty(len(before), np.float32)
    for start, end in _chunks(head, 0, len(distinct)):
        here = slice(*np.searchsorted(which, (start, end)))
        chunk = torch.from_numpy(distinct[start:end]).to(device)
        logits = head.logits(hidden_NH[chunk])
        logp = torch.log_softmax(logits, -1)
        row = torch.from_numpy(which[here] - start).to(device)
        target = torch.from_numpy(targets[here]).to(device)
        target_logp = logp[row, target].cpu()
        logprobs[order[here]] = target_logp.numpy()
    start = 0
    for request, _, first in requested:
        assert request.scores is not None
        assert request.scores.logprobs_P is not None
        end = start + len(request.prompt) - first
        request.scores.logprobs_P[first:] = logprobs[start:end]
        start = end


def _score_topk(
    head: Head, hidden_PH: Tensor, request: SampleRequest
) -> tuple[np.ndarray, np.ndarray]:
    """Return ids and log-probabilities of the most likely tokens at each position, [P, K] each."""
    length = len(request.prompt)
    count = request.prompt_options.topk
    ids_PK = np.zeros((length, count), np.int32)
    logprobs_PK = np.full((length, count), MISSING_LOGPROB, np.float32)
    for start, end in _chunks(head, _first_scored(request), length):
        context_RH = hidden_PH[start - 1 : end - 1]
        logits = head.logits(context_RH)
        top = torch.log_softmax(logits, -1).topk(count, -1)
        ids_PK[start:end] = top.indices.cpu().numpy()
        logprobs_PK[start:end] = top.values.cpu().numpy()
    return ids_PK, logprobs_PK


def _score_targets(head: Head, hidden_PH: Tensor, targets_RK: np.ndarray) -> np.ndarray:
    """Return log p of `targets_RK[i]` at position i + 1, 0 where the target is -1."""
    values = np.zeros(targets_RK.shape, np.float32)
    scored_RK = targets_RK >= 0
    rows = np.flatnonzero(scored_RK.any(1))
    if rows.size == 0:
        return values
    ids = np.maximum(targets_RK, 0)
    targets = torch.from_numpy(ids).to(hidden_PH.device)
    for start, end in _chunks(head, int(rows[0]), len(targets_RK)):
        logits = head.logits(hidden_PH[start:end])
        logprobs = gather_logprobs(logits, targets[start:end])
        here = scored_RK[start:end]
        values[start:end] = np.where(here, logprobs.cpu().numpy(), 0.0)
    return values
