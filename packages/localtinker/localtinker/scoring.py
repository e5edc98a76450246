"""Scores of prompts: log-probabilities of the tokens, top-k, and of given ids.

Position i of a prompt of P tokens is predicted from position i - 1. Position 0 has no context and is never scored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from localtinker.sampling import SampleRequest
from localtinker.wire import MISSING_LOGPROB, PromptScores

LOGIT_BUDGET = 2**18  # logits in memory at once: 1 MiB, which fits into a core's cache
_MIN_ROWS = (
    128  # positions per chunk; with fewer the matrix product is slow, whatever the vocabulary
)


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
            request.scores.logprobs_P = np.full(len(request.prompt), np.nan, np.float32)
    _score_tokens(head, hidden_NH, rows, requests)
    for rows_P, request in zip(rows, requests, strict=True):
        options, scores = request.prompt_options, request.scores
        assert scores is not None
        if not (options.topk or options.targets_RK is not None):
            continue
        hidden_PH = hidden_NH[torch.from_numpy(rows_P).to(hidden_NH.device)]
        if options.topk:
            scores.topk = _score_topk(head, hidden_PH, request)
        if options.targets_RK is not None:
            scores.targets = (
                _score_targets(head, hidden_PH, options.targets_RK),
                options.target_cells,
            )


def gather_logprobs(logits: Tensor, targets: Tensor) -> Tensor:
    """Return log p of targets [..., K] under logits [..., V], in float32."""
    logits = logits.float()
    return logits.gather(-1, targets) - logits.logsumexp(-1, keepdim=True)


def _first_scored(request: SampleRequest) -> int:
    last_n = request.prompt_options.last_n
    return 1 if last_n is None else max(len(request.prompt) - last_n, 1)


def _chunks(head: Head, first: int, length: int) -> list[tuple[int, int]]:
    """Return ranges of positions whose logits fit into the budget."""
    step = max(_MIN_ROWS, LOGIT_BUDGET // head.vocab_size)
    return [(start, min(start + step, length)) for start in range(first, length, step)]


def _score_tokens(
    head: Head, hidden_NH: Tensor, rows: Sequence[np.ndarray], requests: Sequence[SampleRequest]
) -> None:
    """Set the log-probability of each scored prompt token, for all requests together, in chunks that fit
    into the budget."""
    asking = [
        (r, rows_P, _first_scored(r))
        for r, rows_P in zip(requests, rows, strict=True)
        if r.prompt_options.logprobs and len(r.prompt) > 1
    ]
    if not asking:
        return
    before = np.concatenate([rows_P[first - 1 : len(r.prompt) - 1] for r, rows_P, first in asking])
    targets = np.concatenate([np.asarray(r.prompt[first:]) for r, _, first in asking])
    distinct, which = np.unique(before, return_inverse=True)
    order = np.argsort(which, kind="stable")
    which, targets = which[order], targets[order]
    device = hidden_NH.device
    logprobs = np.empty(len(before), np.float32)
    for start, end in _chunks(head, 0, len(distinct)):
        here = slice(*np.searchsorted(which, (start, end)))
        logits = head.logits(hidden_NH[torch.from_numpy(distinct[start:end]).to(device)])
        index = tuple(torch.from_numpy(part[here]).to(device) for part in (which - start, targets))
        logprobs[order[here]] = torch.log_softmax(logits, -1)[index].cpu().numpy()
    start = 0
    for request, _, first in asking:
        assert request.scores is not None
        assert request.scores.logprobs_P is not None
        request.scores.logprobs_P[first:] = logprobs[start : start + len(request.prompt) - first]
        start += len(request.prompt) - first


def _score_topk(
    head: Head, hidden_PH: Tensor, request: SampleRequest
) -> tuple[np.ndarray, np.ndarray]:
    """Return ids and log-probabilities of the most likely tokens at each position, [P, K] each."""
    shape = len(request.prompt), request.prompt_options.topk
    ids_PK, logprobs_PK = np.zeros(shape, np.int32), np.full(shape, MISSING_LOGPROB, np.float32)
    for start, end in _chunks(head, _first_scored(request), len(request.prompt)):
        logp = torch.log_softmax(head.logits(hidden_PH[start - 1 : end - 1]), -1)
        top = logp.topk(request.prompt_options.topk, -1)
        ids_PK[start:end], logprobs_PK[start:end] = (
            top.indices.cpu().numpy(),
            top.values.cpu().numpy(),
        )
    return ids_PK, logprobs_PK


def _score_targets(head: Head, hidden_PH: Tensor, targets_RK: np.ndarray) -> np.ndarray:
    """Return log p of `targets_RK[i]` at position i + 1, 0 where the target is -1."""
    values = np.zeros(targets_RK.shape, np.float32)
    asked = np.flatnonzero((targets_RK >= 0).any(1))
    if asked.size == 0:
        return values
    targets = torch.from_numpy(np.maximum(targets_RK, 0)).to(hidden_PH.device)
    for start, end in _chunks(head, int(asked[0]), len(targets_RK)):
        picked = gather_logprobs(head.logits(hidden_PH[start:end]), targets[start:end])
        values[start:end] = np.where(targets_RK[start:end] >= 0, picked.cpu().numpy(), 0.0)
    return values
