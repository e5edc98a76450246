"""The protocol of a backend, which trains and samples, and its data types.

A backend is an object that implements `Provider`. A run selects it by name (registry.py);
tests/backend/test_backend_conformance.py tests it. Every method raises `BackendUnavailableError` if the
same call may succeed later, `WeightsGoneError` if weights no longer exist, and `PolicyError` if waiting
does not help (rtl_core/errors.py). Errors of the library behind it do not escape.

A backend need not ensure that a train step is applied once: rollouts/training.py repeats it from the last recorded
state with a new trainer.

Shapes: P prompt tokens, T completion tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rtl_core.config import RunConfig
from rtl_core.errors import MalformedAnswerError, PolicyError
from rtl_core.learning.distributions import Choices
from rtl_core.learning.kl import FloatArray
from rtl_core.prompting.chat import answer_text
from rtl_core.types.finding import Finding
from rtl_core.types.numbers import Bools, Floats, Floats32, Ints
from rtl_core.types.tell import Tell
from rtl_core.types.tokenizer import TokenIds, Tokenizer

ROUNDING = 1e-3
"""Tolerance above 0 for log-probabilities, which may be computed in bfloat16."""
SERVER_HINT = (
    "the request is retried; if that does not help, `rtl-distill admin check-service URL` reports what the "
    "server does wrong"
)
SAVED = "tinker://"
"""Prefix of the names of saved weights."""


@dataclass(frozen=True)
class Weights:
    """Weights that sample or score. Student: saved at `path` (None: untrained). Teacher: saved at `path`,
    or the base model `model` (None: the run's `tinker.teacher`)."""

    policy: Literal["student", "teacher"] = "student"
    path: str | None = None
    model: str | None = None

    @classmethod
    def of_teacher(cls, name: str) -> Weights:
        """Return the weights of a teacher named in a configuration: a model, or `tinker://...`."""
        return (
            cls("teacher", path=name) if name.startswith(SAVED) else cls("teacher", model=name)
        )


@dataclass(frozen=True)
class SamplingParams:
    """Sampling settings. An answer ends with a token in `stop` or after `max_tokens`. Each token is drawn
    from the smallest set of likeliest tokens whose total probability, at this temperature, is at least
    `top_p`. `likeliest`: number of likeliest tokens to return at each position; a backend may leave them out."""

    max_tokens: int
    temperature: float
    stop: TokenIds
    top_p: float = 1.0
    likeliest: int = 0


@dataclass(frozen=True)
class SampledAnswer:
    """One completion: its T tokens including the stop token, the sampler's log-probabilities, its text
    without the stop token, and the likeliest tokens if they were requested."""

    tokens_T: list[int]
    logprobs_T: list[float]
    stop_reason: Literal["stop", "length"]
    text: str
    choices: Choices | None = None
    n_cached: int | None = None
    """Prompt tokens that are billed for this answer as read from the service's cache; None: unknown."""

    @classmethod
    def checked(
        cls,
        tokens_T: TokenIds,
        logprobs_T: Sequence[float] | None,
        stopped: bool,
        tokenizer: Tokenizer,
        params: SamplingParams,
    ) -> SampledAnswer:
        """Validate a sample of a backend, which reports that it `stopped` or reached the limit. Raises
        MalformedAnswerError if it exceeds `max_tokens`, or if a token is not in the vocabulary or has no
        valid log-probability."""
        if len(tokens_T) > params.max_tokens:
            raise MalformedAnswerError(
                f"a sample has {len(tokens_T)} tokens, but max_tokens is {params.max_tokens}",
                SERVER_HINT,
            )
        if unknown := [token for token in tokens_T if token not in token_ids(tokenizer)]:
            raise MalformedAnswerError(
                f"a sample has the token {unknown[0]}, which is not in the vocabulary",
                SERVER_HINT,
            )
        checked_logprobs(logprobs_T, len(tokens_T), "a sample")
        text, ended = answer_text(tokenizer, tokens_T, params.stop)
        return cls(
            list(tokens_T),
            list(logprobs_T or ()),
            "stop" if stopped or ended else "length",
            text,
        )


@lru_cache(maxsize=8)
def token_ids(tokenizer: Tokenizer) -> frozenset[int]:
    """Return all ids of a vocabulary."""
    return frozenset(tokenizer.get_vocab().values())


def checked_logprobs(values: Sequence[float | None] | None, count: int, what: str) -> Floats:
    """Validate a backend's log-probabilities of the `count` tokens of `what` and return them as an array.
    Raises MalformedAnswerError if the number differs, or a value is not finite or above 0 by more than
    rounding."""
    values_T = np.array(
        [np.nan if value is None else value for value in values or ()], np.float64
    )
    if values_T.shape != (count,):
        raise MalformedAnswerError(
            f"{what} has {values_T.size} log-probabilities for {count} tokens", SERVER_HINT
        )
    valid_T = np.isfinite(values_T) & (values_T <= ROUNDING)
    if not valid_T.all():
        t = int(np.argmin(valid_T))
        raise MalformedAnswerError(
            f"{what} has the log-probability {values_T[t]} at token {t + 1} of {count}",
            SERVER_HINT,
        )
    return values_T


def checked_choices(
    ids_TK: NDArray[np.integer], values_TK: FloatArray, count: int, k: int
) -> Choices:
    """Validate a backend's `k` likeliest tokens at each of `count` positions. Ids may be those of padded
    embedding rows. Raises MalformedAnswerError if the shape differs, or for the reasons of
    `checked_logprobs`."""
    if ids_TK.shape != (count, k) or values_TK.shape != (count, k):
        raise MalformedAnswerError(
            f"the {k} likeliest tokens at {count} positions have the shape {ids_TK.shape}",
            SERVER_HINT,
        )
    checked_logprobs(values_TK.ravel().tolist(), count * k, "a list of likeliest tokens")
    return Choices(ids_TK.astype(np.int64), values_TK.astype(np.float32))


def checked_metrics(metrics: Mapping[str, float]) -> dict[str, float]:
    """Validate a backend's metrics. Raises MalformedAnswerError if one is not finite."""
    for name, value in metrics.items():
        if not math.isfinite(value):
            raise MalformedAnswerError(
                f"the metric {name} of a train step is {value}", SERVER_HINT
            )
    return dict(metrics)


@dataclass(frozen=True)
class Datum:
    """One sequence to train on, with the loss inputs of its completion: name -> [T]. The prompt is not trained on.

    With `others_TK` the loss has K more targets at each position, after the sequence's own token; its
    inputs are then [T, 1 + K].
    """

    prompt_P: TokenIds
    tokens_T: TokenIds
    inputs: Mapping[str, NDArray[Any]]
    others_TK: Ints | None = None
    own_T: Bools | None = None
    """In an episode, which tokens of the completion the policy sampled; None: all. Not read by losses: the
    inputs are 0 elsewhere."""

    @property
    def sequence(self) -> list[int]:
        """All P + T tokens. A backend reads all but the last and predicts all but the first."""
        return [*self.prompt_P, *self.tokens_T]

    @property
    def padded(self) -> dict[str, NDArray[Any]]:
        """Inputs for the P + T − 1 predicted tokens. They are 0 for prompt tokens, which thus have no gradient."""
        return {name: self._padded(values_T) for name, values_T in self.inputs.items()}

    @property
    def targets(self) -> Ints:
        """The P + T − 1 predicted tokens; with `others_TK` 1 + K at each position, 0 for prompt tokens."""
        own = np.array(self.sequence[1:], np.int64)
        if self.others_TK is None:
            return own
        return np.column_stack([own, self._padded(self.others_TK)])

    def _padded(self, values_T: NDArray[Any]) -> NDArray[Any]:
        shape = (len(self.prompt_P) - 1, *values_T.shape[1:])
        return np.concatenate([np.zeros(shape, values_T.dtype), values_T])

    def completion_logprobs(self, values: NDArray[Any]) -> Floats:
        """Return the completion's `checked_logprobs`, (T,) or (T, 1 + K), from those of all predicted tokens."""
        shape = (len(self.tokens_T), *self.targets.shape[1:])
        flat = np.asarray(values[-shape[0] :]).ravel().tolist()
        return checked_logprobs(flat, math.prod(shape), "a trained answer").reshape(shape)


@dataclass(frozen=True)
class Adam:
    """AdamW's settings for one step. A `grad_clip_norm` of 0 disables clipping."""

    learning_rate: float
    beta1: float
    beta2: float
    eps: float
    grad_clip_norm: float


Logprobs = Sequence[Floats]
"""The trainer's log-probabilities of the completion of each datum, (T,)."""
Check = Callable[[Logprobs], object]


@dataclass(frozen=True)
class StepResult:
    """Result of a train step: number of datums, billed tokens, the trainer's log-probabilities of each
    datum's completion before the step, (T,), and the backend's own metrics."""

    examples: int = 0
    tokens: int = 0
    logprobs: Logprobs = ()
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Checkpoint:
    """Paths of the weights after a step: the full state to resume from, and the frozen copy to sample from."""

    state_path: str
    sampler_path: str


@dataclass(frozen=True)
class Saved:
    """Saved weights: an adapter of `base_model` with a rank (None: unknown)."""

    base_model: str
    rank: int | None = None


class Trainer(Protocol):
    """The student in training. It is not used again after an error, because its weights may or may not
    include the step.

    Its methods also raise `TrainerLostError` if it is lost and a new one must be opened.
    """

    async def step(
        self,
        datums: Sequence[Datum],
        loss: str,
        parameters: Mapping[str, float],
        adam: Adam,
        check: Check | None = None,
    ) -> StepResult:
        """Run one forward-backward pass over at least one datum, with a loss of localtinker/losses.py and all
        its parameters, and one optimizer step. `check` receives the log-probabilities of the result before
        the optimizer step is requested; its error prevents that step."""

    async def logprobs(self, datums: Sequence[Datum]) -> list[Floats]:
        """Return log-probabilities of all targets of each datum's completion, (T,) or (T, 1 + K), under the
        current weights."""

    async def save(self, name: str, ttl_s: int | None) -> Checkpoint:
        """Save state and sampler weights as `name`, replacing what an interrupted save left. Both expire
        after `ttl_s` seconds (None: never)."""


class Backend(Protocol):
    """A backend opened for a run. It serves the student and the teacher, if any."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The student's."""

    async def sample(
        self,
        weights: Weights,
        prompt_P: TokenIds,
        count: int,
        params: SamplingParams,
        *,
        seeds: Sequence[int] | None = None,
        tokenizer: Tokenizer | None = None,
    ) -> list[SampledAnswer]:
        """Return `count` independent answers to one prompt. With `seeds`, one per answer, they are reproducible.
        `tokenizer`: of the sampling model, given only if its tokens are not the student's."""

    async def logprobs(
        self, weights: Weights, prompt_P: TokenIds, tokens_T: TokenIds
    ) -> Floats32:
        """Return the log-probability of each of the T tokens given the prompt and the tokens before it, at
        temperature 1."""

    async def choices(
        self, weights: Weights, prompt_P: TokenIds, tokens_T: TokenIds, k: int
    ) -> tuple[Floats32, Choices]:
        """Return `logprobs` and the `k` likeliest tokens at each of the T positions."""

    async def logprobs_of(
        self,
        weights: Weights,
        prompt_P: TokenIds,
        tokens_T: TokenIds,
        ids_TK: Ints,
    ) -> tuple[Floats32, Floats32]:
        """Return `logprobs` and the log-probabilities of the K tokens `ids_TK` at each of the T positions, (T, K)."""

    async def open_trainer(
        self, state_path: str | None, *, weights_only: bool = False
    ) -> Trainer:
        """Open a trainer with the weights and optimizer of a saved state (None: a new adapter, initialised
        by the run's seed). `weights_only`: with a new optimizer, for a run that starts from another run's
        weights (`tinker.start_from`)."""

    async def describe(self, path: str) -> Saved:
        """Describe saved weights (`tinker.start_from`, or of a teacher). Raises PolicyError if they do not exist."""

    async def delete(self, paths: Collection[str]) -> int:
        """Delete saved weights, ignoring those that no longer exist. Returns the number deleted."""

    async def keep(self, paths: Collection[str]) -> None:
        """Remove the expiry of saved weights."""

    def abort(self) -> None:
        """Kill what runs on this machine, from any thread. The backend must still be closed."""


@dataclass(frozen=True)
class Readiness:
    """Result of a backend's checks before a run."""

    findings: Sequence[Finding] = ()
    context: Mapping[str, int] = field(default_factory=dict)
    """Mapping of model to the maximum tokens of prompt and answer together. Models with an unknown limit
    are missing."""
    checkpoint_bytes: int = 0
    """Size of one step's weights in the run's folder."""
    saved: Mapping[str, Saved | PolicyError] = field(default_factory=dict)
    """Mapping of configuration key to the saved weights that it names, or the error if they do not exist.
    Not a finding, because a run that has begun may not need the weights that it started from."""
    newest_weights_only: bool = False
    """Whether the student of a run can be sampled only with its newest weights."""


@runtime_checkable
class Provider(Protocol):
    """A backend that is not open yet."""

    def embedded(self, config: RunConfig) -> bool:
        """Whether it runs in the run's folder. Then only one process at a time may open it, and its tokens are free."""

    async def check(self, config: RunConfig) -> Readiness:
        """Check, within a minute and without retries, whether it can open for a run, has its models and can
        train the student.

        Problems are reported as findings, not errors. Some may be temporary, such as a busy service.
        """

    def tokenizer(self, config: RunConfig, model: str) -> Tokenizer:
        """Return the tokenizer of a model. Raises PolicyError if it cannot be loaded."""

    def open(self, config: RunConfig, tell: Tell) -> AbstractAsyncContextManager[Backend]:
        """Return a context manager that opens it for a run. `tell`: callback for lines to the user, called
        from any thread.

        Raises PolicyError if the student or teacher does not exist, or a key is missing.
        """

    async def stored(self, config: RunConfig) -> Collection[str]:
        """Return the paths of all saved weights that exist now, at least those of the run's trainers. The
        run need not be open."""

    async def export(
        self, config: RunConfig, state_path: str, name: str, folder: Path
    ) -> list[Path]:
        """Write the adapter saved at `state_path` to `folder` in peft's format. The run need not be open."""
