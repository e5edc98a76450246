"""Sampling requests, and the choice of the next token."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from localtinker.errors import RequestError
from localtinker.packing import shares
from localtinker.wire import Cells, PromptScores, SampledSequence, encode_sample_response

Take = Callable[[bytes | Exception], None]
"""Callback that receives the answer to a job: a serialised SampleResponse, or the error."""

Decode = Callable[[Sequence[int]], str]
"""Returns the text of tokens, special tokens included."""
Choice = tuple[list[int], list[float]]
"""A token for each row, and their log-probabilities at temperature 1."""

# Far enough below 1 that u * total < total after rounding, so that no token of probability zero is drawn.
_LARGEST_UNIFORM = 1.0 - 2.0**-50
_LARGEST_SEED = 2**64 - 1


@dataclass(frozen=True)
class Vocabulary:
    """The vocabulary of a model's tokenizer."""

    decode: Decode
    size: int
    """Largest id plus one. A model's matrices may be padded with further rows; their ids are never sampled."""


@dataclass(frozen=True)
class SamplingOptions:
    """How to choose tokens and when to stop. `top_k` -1 and `top_p` 1 mean no limit; temperature 0 is greedy."""

    max_tokens: int
    temperature: float = 1.0
    top_k: int = -1
    top_p: float = 1.0
    stop_ids: frozenset[int] = frozenset()
    stop_strings: tuple[str, ...] = ()
    topk_logprobs: int = 0

    @cached_property
    def plain(self) -> bool:
        """Whether tokens are drawn from the unmodified distribution, and no top-k log-probabilities are requested."""
        whole = self.top_k <= 0 and self.top_p >= 1.0
        return whole and self.temperature == 1.0 and self.topk_logprobs == 0


@dataclass(frozen=True)
class PromptOptions:
    """The requested scores of a prompt. `last_n` limits the scored positions to the last n."""

    logprobs: bool = False
    topk: int = 0
    last_n: int | None = None
    targets_RK: np.ndarray | None = None  # R = P - 1 rows; -1: not requested
    target_cells: Cells | None = None

    @property
    def has_any(self) -> bool:
        return self.logprobs or self.topk > 0 or self.targets_RK is not None


@dataclass(eq=False)
class SampleJob:
    """An `asample` call or a part of it: `num_samples` samples, numbered from `first_sample`."""

    prompt: list[int]
    num_samples: int
    seed: int | None
    options: SamplingOptions
    prompt_options: PromptOptions
    first_sample: int = field(default=0, kw_only=True)

    def split(self, count: int) -> list[SampleJob]:
        """Split into `count` parts of nearly equal size, in the order of the samples. The first part scores
        the prompt."""
        parts = [
            replace(
                self,
                num_samples=len(numbers),
                first_sample=self.first_sample + numbers[0],
                prompt_options=PromptOptions(),
            )
            for numbers in shares(range(self.num_samples), count)
        ]
        parts[0].prompt_options = self.prompt_options
        return parts


@dataclass(eq=False)
class SampleRequest(SampleJob):
    """A running job: the callback for its answer, and its rows."""

    take: Take
    cancelled: bool = False
    scores: PromptScores | None = None
    open_rows: int = 0
    rows: list[Row] = field(default_factory=list)
    shared: int = 0
    """Tokens of the prompt if it was computed for another request of the same pass, else 0."""

    def cancel(self) -> None:
        """Give the request up, which gets no answer then. Thread-safe."""
        self.cancelled = True

    @property
    def needs_scores(self) -> bool:
        return self.prompt_options.has_any and self.scores is None

    @property
    def needs_cache(self) -> bool:
        """Whether a sample may have a second token."""
        return self.options.max_tokens > 1

    def make_rows(self) -> list[Row]:
        """Create one row per sample.

        Sample j of seed s draws from the random stream (s, j). So the samples of a request differ, sample j
        does not depend on the number of samples, and (s, 0) is the sample of a request for one.
        """
        for number in range(self.first_sample, self.first_sample + self.num_samples):
            stream = None
            if self.seed is not None:
                stream = [self.seed & _LARGEST_SEED, number]
            uniforms = _uniforms(np.random.default_rng(stream))
            self.rows.append(Row(request=self, uniforms=uniforms))
        self.open_rows = self.num_samples
        return self.rows

    def row_done(self) -> None:
        """Note that a row has stopped. The last one delivers the answer."""
        self.open_rows -= 1
        if self.open_rows == 0:
            self.take(encode_sample_response(self.rows, self.scores, self.shared))


def note_shared(rows: Sequence[Row]) -> None:
    """Note which requests of a pass have the prompt of another one. Not those that have their own pass for scores, and
    of a divided request only the first rows, because the messages of its parts are merged."""
    known = set()
    for request in requests_of(rows):
        prompt, begun = tuple(request.prompt), request.rows[0].tokens
        if prompt in known and request.scores is None and not (request.first_sample or begun):
            request.shared = len(prompt)
        known.add(prompt)


def _uniforms(rng: np.random.Generator) -> Iterator[float]:
    """Yield random numbers in [0, 1). Drawing them in blocks is five times as fast and gives the same numbers."""
    while True:
        yield from np.minimum(rng.random(64), _LARGEST_UNIFORM).tolist()


@dataclass(eq=False, kw_only=True)
class Row(SampledSequence):
    """A sequence being sampled."""

    request: SampleRequest
    uniforms: Iterator[float]
    done: bool = False

    def take(self, token: int, logprob: float, decode: Decode) -> bool:
        """Record the next token and return whether the row has ended."""
        options = self.request.options
        self.tokens.append(token)
        self.logprobs.append(logprob)
        if token in options.stop_ids or (
            options.stop_strings and self._hits_stop_string(decode)
        ):
            self.stopped = self.done = True
        elif len(self.tokens) >= options.max_tokens:
            self.done = True
        return self.done

    def _hits_stop_string(self, decode: Decode) -> bool:
        # A token has at least one byte and a character at most four, so this tail contains any stop string
        # that ends here.
        strings = self.request.options.stop_strings
        tail = 4 * max(map(len, strings)) + 4
        text = decode(self.tokens[-tail:])
        return any(string in text for string in strings)


class Batch:
    """Rows that are sampled together, with one set of weights."""

    def __init__(self, decoder: Any, vocabulary: Vocabulary) -> None:
        self.decoder = decoder
        self.rows: list[Row] = []
        self._vocabulary = vocabulary
        self._cache: Any = None  # the decoder's; None while no row needs one

    def last_tokens(self) -> list[int]:
        return [row.tokens[-1] for row in self.rows]

    @property
    def live(self) -> int:
        return sum([not row.done for row in self.rows])

    def positions(self) -> int:
        """Return an upper bound of the cache positions that this batch needs."""
        live = [row for row in self.rows if not row.done]
        lengths = [len(r.prompt) + r.options.max_tokens for r in requests_of(live)]
        return len(live) * max(lengths, default=0)

    def admit(self, rows: Sequence[Row]) -> None:
        """Prefill the prompts of `rows`, one prefill per distinct prompt, score them if requested, and
        sample the first tokens."""
        raise NotImplementedError

    def step(self) -> None:
        """Sample one more token for every live row."""
        raise NotImplementedError

    def _stop_cancelled(self) -> None:
        for row in self.rows:
            row.done = row.done or row.request.cancelled

    def _drop_stopped(self) -> list[int]:
        """Drop the rows that have stopped. Returns the former numbers of the others."""
        keep = [i for i, row in enumerate(self.rows) if not row.done]
        self.rows = [self.rows[i] for i in keep]
        return keep

    def _take(self, logits_BV: Tensor, rows: Sequence[Row]) -> None:
        """Sample and record one token per row."""
        tokens, logprobs = choose(logits_BV, rows, self._vocabulary.size)
        for row, token, logprob in zip(rows, tokens, logprobs, strict=True):
            if not row.done and row.take(token, logprob, self._vocabulary.decode):
                row.request.row_done()


def requests_of(rows: Iterable[Row]) -> list[SampleRequest]:
    """Return the distinct requests of these rows, in order of first appearance."""
    return list(dict.fromkeys(row.request for row in rows))


def tensor_of(values: Sequence[float], dtype: type[np.generic], device: torch.device) -> Tensor:
    """Convert numbers to a tensor through numpy, four times as fast as `torch.tensor`."""
    return torch.from_numpy(np.array(values, dtype)).to(device)


def choose(logits_BV: Tensor, rows: Sequence[Row], size: int) -> Choice:
    """Sample one token per row from the ids below `size`; return tokens and their log-probabilities at temperature 1.

    Inverse transform sampling with one uniform number per token, so that a row's tokens depend only on its
    logits and random stream.
    """
    plain = [row.request.options.plain for row in rows]
    if all(plain):
        return _choose_plain(logits_BV, rows, size)
    if not any(plain):
        return _choose_shaped(logits_BV, rows, size)
    # Separately, so that a row's arithmetic does not depend on the options of other rows.
    tokens = [0] * len(rows)
    logprobs = [0.0] * len(rows)
    for kind, choose_kind in ((True, _choose_plain), (False, _choose_shaped)):
        index = [i for i, is_plain in enumerate(plain) if is_plain is kind]
        part_BV = logits_BV.index_select(0, torch.tensor(index, device=logits_BV.device))
        choices = choose_kind(part_BV, [rows[i] for i in index], size)
        for i, token, logprob in zip(index, *choices, strict=True):
            tokens[i] = token
            logprobs[i] = logprob
    return tokens, logprobs


def _choose_plain(logits_BV: Tensor, rows: Sequence[Row], size: int) -> Choice:
    """`choose` from the unmodified distribution."""
    p_BV = torch.softmax(logits_BV, -1)
    tokens_B = _draw(p_BV[:, :size], rows)
    return _as_lists(tokens_B, _at(p_BV, tokens_B).log_())


def _choose_shaped(logits_BV: Tensor, rows: Sequence[Row], size: int) -> Choice:
    """`choose` for rows with a temperature, top-k or top-p, or that request top-k log-probabilities."""
    options = [row.request.options for row in rows]
    logp_BV = torch.log_softmax(logits_BV, -1)
    shaped_BV = logp_BV[:, :size]
    temperatures = [o.temperature for o in options]
    if any(temperature != 1.0 for temperature in temperatures):
        divisors_B = logp_BV.new_tensor([temperature or 1.0 for temperature in temperatures])
        shaped_BV = shaped_BV / divisors_B[:, None]
    if any(o.top_k > 0 or o.top_p < 1.0 for o in options):
        shaped_BV = _truncate(shaped_BV, options)
    tokens_B = _draw(torch.softmax(shaped_BV, -1), rows)
    if 0.0 in temperatures:
        greedy_B = logp_BV.new_tensor(temperatures) == 0
        likeliest_B = logits_BV[:, :size].argmax(-1)
        tokens_B = torch.where(greedy_B, likeliest_B, tokens_B)
    if most := max(option.topk_logprobs for option in options):
        top = logp_BV.topk(most)
        ids_BK, logprobs_BK = top.indices.cpu().numpy(), top.values.cpu().numpy()
        for row, ids_K, logprobs_K in zip(rows, ids_BK, logprobs_BK, strict=True):
            count = row.request.options.topk_logprobs
            if count and not row.done:
                row.topk.append((ids_K[:count], logprobs_K[:count]))
    return _as_lists(tokens_B, _at(logp_BV, tokens_B))


def _draw(p_BV: Tensor, rows: Sequence[Row]) -> Tensor:
    """Draw one token per row."""
    cdf_BV = p_BV.cumsum(-1, dtype=torch.float64)
    uniforms = [next(row.uniforms) for row in rows]
    u_B = tensor_of(uniforms, np.float64, p_BV.device)
    total_B1 = cdf_BV[:, -1:]
    share_B1 = u_B[:, None] * total_B1
    tokens_B = torch.searchsorted(cdf_BV, share_B1, right=True)[:, 0]
    return tokens_B.clamp_(max=p_BV.shape[1] - 1)  # NaN is larger than any sum


def _at(values_BV: Tensor, tokens_B: Tensor) -> Tensor:
    """Return the value of each row's token, [B]."""
    columns_B1 = tokens_B[:, None]
    return values_BV.gather(1, columns_B1)[:, 0]


def _as_lists(tokens_B: Tensor, logprobs_B: Tensor) -> Choice:
    """Convert the choice of `choose`. Raises RequestError if a log-probability is NaN."""
    logprobs = logprobs_B.tolist()
    if math.isnan(sum(logprobs)):
        raise RequestError(
            "these weights give NaN log-probabilities: their training has diverged"
        )
    return tokens_B.tolist(), logprobs


def _truncate(shaped_BV: Tensor, options: Sequence[SamplingOptions]) -> Tensor:
    """Apply top-k, then top-p, to each row. The most likely token always stays."""
    shaped_BV = shaped_BV.clone()
    for row, option in zip(shaped_BV, options, strict=True):
        if 0 < option.top_k < row.shape[0]:
            kth = row.topk(option.top_k).values[-1]
            row[row < kth] = -torch.inf
        if option.top_p < 1.0:
            ordered, index = row.softmax(-1).sort(descending=True)
            beyond = (ordered.cumsum(-1) - ordered) >= option.top_p
            beyond[0] = False
            row[index[beyond]] = -torch.inf
    return shaped_BV
