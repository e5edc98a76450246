"""Sampling requests, and the choice of the next token."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rtl_core.localtinker import RequestError
from rtl_core.localtinker.wire import Cells, PromptScores, SampledSequence, encode_sample_response

Take = Callable[[bytes | Exception], None]
"""Takes what a job is answered: a serialised SampleResponse, or why there is none."""

# So far below 1 that u * total < total after rounding: no token of probability zero can be hit.
_LARGEST_UNIFORM = 1.0 - 2.0**-50


@dataclass(frozen=True)
class Vocabulary:
    """What a model's tokenizer knows."""

    decode: Callable[[Sequence[int]], str]
    """The text of tokens, special ones included."""
    size: int
    """One above its largest id. A model's matrices can have rows beyond it, to fill them up; such ids are never sampled."""


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
        """Whether tokens are drawn from the model's own distribution and nothing more is asked."""
        return self.temperature == 1.0 and self.top_k <= 0 and self.top_p >= 1.0 and self.topk_logprobs == 0


@dataclass(frozen=True)
class PromptOptions:
    """What to report about the prompt. `last_n` limits the scored positions to the last n."""

    logprobs: bool = False
    topk: int = 0
    last_n: int | None = None
    targets_RK: np.ndarray | None = None  # R = P - 1 rows, -1 where nothing is asked
    target_cells: Cells | None = None
    alternatives: int = 0

    @property
    def wanted(self) -> bool:
        return self.logprobs or self.topk > 0 or self.targets_RK is not None or self.alternatives > 0


@dataclass
class SampleJob:
    """What one `asample` call asks for, or a part of it: `num_samples` samples, the first of which is number `first_sample`."""

    prompt: list[int]
    num_samples: int
    seed: int | None
    options: SamplingOptions
    prompt_options: PromptOptions
    first_sample: int = field(default=0, kw_only=True)

    def split(self, count: int) -> list[SampleJob]:
        """This job in `count` parts of nearly one size, in the order of their samples; the first part scores the prompt."""
        bounds = [self.num_samples * i // count for i in range(count + 1)]
        return [
            replace(
                self,
                num_samples=end - start,
                first_sample=self.first_sample + start,
                prompt_options=PromptOptions() if start else self.prompt_options,
            )
            for start, end in itertools.pairwise(bounds)
        ]


@dataclass
class SampleRequest(SampleJob):
    """A job at work: what takes its answer, and its rows."""

    take: Take
    cancelled: threading.Event = field(default_factory=threading.Event)
    scores: PromptScores | None = None
    open_rows: int = 0
    rows: list[Row] = field(default_factory=list)

    @property
    def goes_on(self) -> bool:
        """Whether a sample may have a second token: one that has not needs no cache."""
        return self.options.max_tokens > 1

    def make_rows(self) -> list[Row]:
        """One row per sample.

        Sample j of seed s draws from the stream of (s, j): the samples of one request differ from each other, sample j
        does not depend on how many others were asked for, and (s, 0) is what a request for one sample gets.
        """
        numbers = range(self.first_sample, self.first_sample + self.num_samples)
        self.rows = [Row(self, _uniforms(_entropy(self.seed, j))) for j in numbers]
        self.open_rows = self.num_samples
        return self.rows

    def row_done(self) -> None:
        """One of the rows has stopped; the last one delivers the answer."""
        self.open_rows -= 1
        if self.open_rows == 0:
            self.take(encode_sample_response([row.sequence for row in self.rows], self.scores))


def _entropy(seed: int | None, index: int) -> list[int] | None:
    return None if seed is None else [seed & (2**64 - 1), index]


def _uniforms(entropy: list[int] | None) -> Iterator[float]:
    """Random numbers in [0, 1), drawn in blocks, which costs a fifth of one by one and gives the same numbers."""
    rng = np.random.default_rng(entropy)
    while True:
        yield from np.minimum(rng.random(64), _LARGEST_UNIFORM).tolist()


@dataclass
class Row:
    """One sequence being sampled."""

    request: SampleRequest
    uniforms: Iterator[float]
    sequence: SampledSequence = field(default_factory=SampledSequence)
    done: bool = False

    def take(self, token: int, logprob: float, decode: Callable[[Sequence[int]], str]) -> bool:
        """Record the next token; returns whether the row has ended."""
        sequence, options = self.sequence, self.request.options
        tokens = sequence.tokens
        tokens.append(token)
        sequence.logprobs.append(logprob)
        if token in options.stop_ids or (options.stop_strings and self._hits_stop_string(decode)):
            sequence.stopped = self.done = True
        elif len(tokens) >= options.max_tokens:
            self.done = True
        return self.done

    def _hits_stop_string(self, decode: Callable[[Sequence[int]], str]) -> bool:
        # A token is at least one byte, a character at most four: this tail holds any stop string that ends here.
        tail = 4 * max(len(s) for s in self.request.options.stop_strings) + 4
        text = decode(self.sequence.tokens[-tail:])
        return any(s in text for s in self.request.options.stop_strings)


class Batch:
    """Rows of one set of weights that are sampled together."""

    def __init__(self, decoder: Any, vocabulary: Vocabulary) -> None:
        self.decoder = decoder
        self.rows: list[Row] = []
        self._vocabulary = vocabulary
        self._cache: Any = None  # the decoder's; None before the first row, and where none goes on
        self._tokens_B: list[int] = []  # the last ones

    @property
    def live(self) -> int:
        return len(self.rows) - sum([row.done for row in self.rows])

    def positions(self) -> int:
        """Cache positions that this batch needs at most."""
        live = [row for row in self.rows if not row.done]
        requests = requests_of(live)
        return len(live) * max((len(request.prompt) + request.options.max_tokens for request in requests), default=0)

    def admit(self, rows: Sequence[Row]) -> None:
        """Prefill the prompts of `rows`, score them if asked, take each row's first token, keep those that go on.

        Rows with the same prompt share one prefill.
        """
        raise NotImplementedError

    def step(self) -> None:
        """One more token for every live row."""
        raise NotImplementedError

    def _take(self, logits_BV: Tensor, rows: Sequence[Row]) -> list[int]:
        """Draw and record a token a row."""
        tokens, logprobs = choose(logits_BV, rows, self._vocabulary.size)
        for row, token, logprob in zip(rows, tokens, logprobs, strict=True):
            if not row.done and row.take(token, logprob, self._vocabulary.decode):
                row.request.row_done()
        return tokens


def requests_of(rows: Iterable[Row]) -> list[SampleRequest]:
    """The requests that these rows belong to, each once, in the order of their first rows."""
    return list({id(row.request): row.request for row in rows}.values())


def tensor_of(values: Sequence[float], dtype: type[np.generic], device: torch.device) -> Tensor:
    """A tensor of a list of numbers; through numpy, in a quarter of the time of `torch.tensor`."""
    return torch.from_numpy(np.array(values, dtype)).to(device)


def choose(logits_BV: Tensor, rows: Sequence[Row], known: int) -> tuple[list[int], list[float]]:
    """Sample one token a row, of ids below `known`; returns tokens and their log-probabilities under the untempered model.

    Inverse transform sampling with one uniform number per row and token, so that a row's tokens depend on its own
    logits and its own random stream alone.
    """
    plain = [row.request.options.plain for row in rows]
    if all(plain):
        return _choose_plain(logits_BV, rows, known)
    if not any(plain):
        return _choose_shaped(logits_BV, rows, known)
    # Apart, so that a row's arithmetic does not depend on what its companions ask for.
    tokens, logprobs = [0] * len(rows), [0.0] * len(rows)
    for kind, choose_kind in ((True, _choose_plain), (False, _choose_shaped)):
        index = [i for i, is_plain in enumerate(plain) if is_plain is kind]
        part_BV = logits_BV.index_select(0, torch.tensor(index, device=logits_BV.device))
        for i, token, logprob in zip(index, *choose_kind(part_BV, [rows[i] for i in index], known), strict=True):
            tokens[i], logprobs[i] = token, logprob
    return tokens, logprobs


def _choose_plain(logits_BV: Tensor, rows: Sequence[Row], known: int) -> tuple[list[int], list[float]]:
    """`choose` from the model's own distribution."""
    p_BV = torch.softmax(logits_BV, -1)
    tokens_B = _draw(p_BV[:, :known], rows)
    return _checked(tokens_B, p_BV.gather(1, tokens_B[:, None])[:, 0].log_())


def _choose_shaped(logits_BV: Tensor, rows: Sequence[Row], known: int) -> tuple[list[int], list[float]]:
    """`choose` for rows that have a temperature, a limit on their tokens, or ask for the most likely ones."""
    options = [row.request.options for row in rows]
    logp_BV = torch.log_softmax(logits_BV, -1)
    shaped_BV = logp_BV[:, :known]
    if any(o.temperature != 1.0 for o in options):
        shaped_BV = shaped_BV / logp_BV.new_tensor([o.temperature or 1.0 for o in options])[:, None]
    if any(o.top_k > 0 or o.top_p < 1.0 for o in options):
        shaped_BV = _truncate(shaped_BV, options)
    tokens_B = _draw(torch.softmax(shaped_BV, -1), rows)
    if any(o.temperature == 0 for o in options):
        greedy = torch.tensor([o.temperature == 0 for o in options], device=logits_BV.device)
        tokens_B = torch.where(greedy, logits_BV[:, :known].argmax(-1), tokens_B)
    for index, option in enumerate(options):
        if option.topk_logprobs and not rows[index].done:
            top = logp_BV[index].topk(option.topk_logprobs)
            rows[index].sequence.topk.append((top.indices.cpu().numpy(), top.values.cpu().numpy()))
    return _checked(tokens_B, logp_BV.gather(1, tokens_B[:, None])[:, 0])


def _draw(p_BV: Tensor, rows: Sequence[Row]) -> Tensor:
    """One token a row from its distribution."""
    cdf_BV = p_BV.cumsum(-1, dtype=torch.float64)
    u_B = tensor_of([next(row.uniforms) for row in rows], np.float64, p_BV.device)
    tokens_B = torch.searchsorted(cdf_BV, u_B[:, None] * cdf_BV[:, -1:], right=True)[:, 0]
    return tokens_B.clamp_(max=p_BV.shape[1] - 1)  # NaN is larger than any sum


def _checked(tokens_B: Tensor, logprobs_B: Tensor) -> tuple[list[int], list[float]]:
    logprobs = logprobs_B.tolist()
    if math.isnan(sum(logprobs)):
        raise RequestError("these weights give NaN log-probabilities: the training that made them has diverged")
    return tokens_B.tolist(), logprobs


def _truncate(shaped_BV: Tensor, options: Sequence[SamplingOptions]) -> Tensor:
    """Apply top-k, then top-p, row by row; the most likely token always stays."""
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
