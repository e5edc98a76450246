"""Scores of prompts: log-probabilities of the tokens, top-k, and of given ids.

Position i of a prompt of P tokens is predicted from position i - 1. Position 0 has no context and is never scored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from localtinker.packing import chunks
from localtinker.sampling import SampleRequest
from localtinker.wire import MISSING_LOGPROB, PromptScores, TopK

LOGIT_BUDGET = 2**18  # logits in memory at once: 1 MiB, which fits into a core's cache
# Positions of a chunk: with fewer the matrix product is slow, whatever the vocabulary.
_MIN_ROWS = 128


class Head(Protocol):
    """Maps final hidden states [rows, H] to float32 logits [rows, V]."""

    vocab_size: int

    def logits(self, hidden: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class _Query:
    """Tokens whose log-probabilities are requested, each after the position at one of the rows, and where
    the results go."""

    rows: np.ndarray
    ids: np.ndarray
    results: np.ndarray
    places: slice | np.ndarray


Unscored = tuple[SampleRequest, np.ndarray]
"""A request, and the rows of the hidden states with the positions of its prompt."""


def score_prompts(head: Head, hidden_NH: Tensor, unscored: Sequence[Unscored]) -> None:
    """Fill `scores` of each request with the scores it asks for.

    Requests may share rows of `hidden_NH`. Log-probabilities of all requests are computed together, with one row of
    logits for each distinct row.
    """
    queries = []
    for request, rows_P in unscored:
        options = request.prompt_options
        scores = request.scores = PromptScores()
        if options.logprobs:
            first = _first_scored(request)
            scores.logprobs_P = np.full(len(rows_P), np.nan, np.float32)
            ids = np.asarray(request.prompt[first:], np.int64)
            context = rows_P[first - 1 : -1]
            queries.append(_Query(context, ids, scores.logprobs_P, slice(first, None)))
        if options.targets_RK is not None:
            requested_RK = options.targets_RK >= 0
            values_RK = np.zeros(requested_RK.shape, np.float32)
            scores.targets = values_RK, options.target_cells
            ids = options.targets_RK[requested_RK]
            context = rows_P[requested_RK.nonzero()[0]]
            queries.append(_Query(context, ids, values_RK, requested_RK))
        if options.topk:
            before = torch.from_numpy(rows_P[_first_scored(request) - 1 : -1])
            context_RH = hidden_NH[before.to(hidden_NH.device)]
            scores.topk = _score_topk(head, context_RH, request)
    if queries:
        _answer(head, hidden_NH, queries)


def gather_logprobs(logits: Tensor, targets: Tensor) -> Tensor:
    """Return log p of targets [..., K] under logits [..., V], in float32."""
    logits = logits.float()
    return logits.gather(-1, targets) - logits.logsumexp(-1, keepdim=True)


def _first_scored(request: SampleRequest) -> int:
    last_n = request.prompt_options.last_n
    return 1 if last_n is None else len(request.prompt) - last_n


def _rows_at_once(head: Head) -> int:
    """Return the number of positions whose logits fit into the budget."""
    return max(_MIN_ROWS, LOGIT_BUDGET // head.vocab_size)


def _answer(head: Head, hidden_NH: Tensor, queries: Sequence[_Query]) -> None:
    """Write the results of all queries, in chunks of rows that fit into the budget."""
    rows = np.concatenate([query.rows for query in queries])
    ids = np.concatenate([query.ids for query in queries])
    distinct, which = np.unique(rows, return_inverse=True)
    order = np.argsort(which, kind="stable")
    which = which[order]
    ids = ids[order]
    device = hidden_NH.device
    logprobs = np.empty(len(rows), np.float32)
    for start, end in chunks(0, len(distinct), _rows_at_once(head)):
        here = slice(*np.searchsorted(which, (start, end)))
        chunk = torch.from_numpy(distinct[start:end]).to(device)
        logits = head.logits(hidden_NH[chunk])
        logp = torch.log_softmax(logits, -1)
        row = torch.from_numpy(which[here] - start).to(device)
        token = torch.from_numpy(ids[here]).to(device)
        token_logp = logp[row, token].cpu()
        logprobs[order[here]] = token_logp.numpy()
    ends = np.cumsum([len(query.ids) for query in queries])
    for query, part in zip(queries, np.split(logprobs, ends[:-1]), strict=True):
        query.results[query.places] = part


def _score_topk(head: Head, context_RH: Tensor, request: SampleRequest) -> TopK:
    """Return ids and log-probabilities of the most likely tokens at each position, [P, K] each, given the hidden states
    before the last R."""
    shape = len(request.prompt), request.prompt_options.topk
    ids_PK = np.zeros(shape, np.int32)
    logprobs_PK = np.full(shape, MISSING_LOGPROB, np.float32)
    end = len(request.prompt) - len(context_RH)
    for part_RH in context_RH.split(_rows_at_once(head)):
        start, end = end, end + len(part_RH)
        logits = head.logits(part_RH)
        top = torch.log_softmax(logits, -1).topk(request.prompt_options.topk, -1)
        ids_PK[start:end] = top.indices.cpu().numpy()
        logprobs_PK[start:end] = top.values.cpu().numpy()
    return ids_PK, logprobs_PK
