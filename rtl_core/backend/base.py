"""What the pipeline asks of whatever trains and samples, and the nouns that go back and forth.

A backend is an object that does what `Provider` says; registry.py tells how a run names it, and tests/backend/test_backend_conformance.py says
what it must do. Every method raises `BackendUnavailableError` where the same call may succeed later, `WeightsGoneError` where weights
do not exist any more, and `PolicyError` where waiting does not help (see rtl_core/errors.py), and no error of a library behind it.

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
from rtl_core.prompting.chat import Chat, answer_text
from rtl_core.types.finding import Finding
from rtl_core.types.tokenizer import Tokenizer

ROUNDING = 1e-3
"""How far above 0 a log-probability may be that was computed in bfloat16."""
SERVER = "it is asked again; if that does not help, `rtl-distill check-service URL` tells what the server does wrong"
SAVED = "tinker://"
"""What the names of saved weights begin with."""


@dataclass(frozen=True)
class Weights:
    """What samples or scores: the student as it was saved at `path` (None: untrained), or a teacher: saved weights at `path`, or the
    base model `model` (None: the run's `tinker.teacher`)."""

    policy: Literal["student", "teacher"] = "student"
    path: str | None = None
    model: str | None = None

    @classmethod
    def of_teacher(cls, name: str) -> Weights:
        """Those of a teacher as a configuration names it: a model, or `tinker://...`."""
        return cls("teacher", path=name) if name.startswith(SAVED) else cls("teacher", model=name)


@dataclass(frozen=True)
class SamplingParams:
    """How answers are drawn: each of `max_tokens` at most, until one of the tokens `stop`. Each token is drawn from the fewest likeliest
    ones whose probabilities, at this temperature, sum to `top_p` or more."""

    max_tokens: int
    temperature: float
    stop: Sequence[int]
    top_p: float = 1.0


@dataclass(frozen=True)
class SampledAnswer:
    """One completion: its T tokens (the stop token included), the sampler's log-probabilities of them, and its text without that token."""

    tokens_T: list[int]
    logprobs_T: list[float]
    stop_reason: Literal["stop", "length"]
    text: str

    @classmethod
    def of(
        cls,
        tokens_T: Sequence[int],
        logprobs_T: Sequence[float] | None,
        stopped: bool,
        tokenizer: Tokenizer,
        asked: SamplingParams,
    ) -> SampledAnswer:
        """From what a backend sampled as `asked`; `stopped`: whether it says that the answer ended by itself.

        Raises:
            MalformedAnswerError: it is longer than asked, a token is not in the vocabulary or has no log-probability.
        """
        if len(tokens_T) > asked.max_tokens:
            raise MalformedAnswerError(
                f"a sample has {len(tokens_T)} tokens, {asked.max_tokens} were asked for at most", SERVER
            )
        known = token_ids(tokenizer)
        if strange := [token for token in tokens_T if token not in known]:
            raise MalformedAnswerError(f"a sample has the token {strange[0]}, which is not in the vocabulary", SERVER)
        checked_logprobs(logprobs_T, len(tokens_T), "a sample")
        text, ended = answer_text(tokenizer, tokens_T, asked.stop)
        return cls(list(tokens_T), list(logprobs_T or ()), "stop" if stopped or ended else "length", text)


@lru_cache(maxsize=8)
def token_ids(tokenizer: Tokenizer) -> frozenset[int]:
    """All ids of a vocabulary."""
    return frozenset(tokenizer.get_vocab().values())


def checked_logprobs(values: Sequence[float | None] | None, count: int, what: str) -> NDArray[np.float64]:
    """Log-probabilities of the `count` tokens of `what`, as an array. Every one from outside comes through here.

    Raises:
        MalformedAnswerError: there are more or fewer, or one is not finite or above 0 by more than rounding.
    """
    found_T = np.array([np.nan if value is None else value for value in values or ()], np.float64)
    if found_T.shape != (count,):
        raise MalformedAnswerError(f"{what} has {found_T.size} log-probabilities for {count} tokens", SERVER)
    if not (np.isfinite(found_T) & (found_T <= ROUNDING)).all():
        place = int(np.argmin(np.isfinite(found_T) & (found_T <= ROUNDING)))
        raise MalformedAnswerError(
            f"{what} has the log-probability {found_T[place]} at token {place + 1} of {count}", SERVER
        )
    return found_T


def checked_choices(ids_TK: NDArray[np.integer], values_TK: FloatArray, count: int, k: int) -> Choices:
    """The `k` likeliest tokens at each of `count` positions, as they came from outside. Ids may be those of padded rows of an embedding.

    Raises:
        MalformedAnswerError: there are more or fewer, or a log-probability is not finite or above 0 by more than rounding.
    """
    if ids_TK.shape != (count, k) or values_TK.shape != (count, k):
        raise MalformedAnswerError(f"the likeliest {k} tokens of {count} positions came as {ids_TK.shape}", SERVER)
    checked_logprobs(values_TK.ravel().tolist(), count * k, "a list of likeliest tokens")
    return Choices(ids_TK.astype(np.int64), values_TK.astype(np.float32))


def checked_metrics(metrics: Mapping[str, float]) -> dict[str, float]:
    """A backend's own metrics. MalformedAnswerError: one is not a finite number; the message names it."""
    for name, value in metrics.items():
        if not math.isfinite(value):
            raise MalformedAnswerError(f"the metric {name} of a train step is {value}", SERVER)
    return dict(metrics)


@dataclass(frozen=True)
class Datum:
    """One sequence to train on, and what the loss reads beside the tokens: name -> [T] of the completion. The prompt is not trained on.

    With `others_TK` a loss has K more targets at each position beside the sequence's own token, which comes first, and its inputs are [T, 1 + K].
    """

    prompt_P: Sequence[int]
    tokens_T: Sequence[int]
    inputs: Mapping[str, NDArray[Any]]
    others_TK: NDArray[np.int64] | None = None
    own_T: NDArray[np.bool_] | None = None
    """Which tokens of the completion the policy sampled, of an episode; None: all. No loss reads it: the inputs are 0 elsewhere."""

    @property
    def sequence(self) -> list[int]:
        """All P + T tokens. A backend reads all but the last and predicts all but the first."""
        return [*self.prompt_P, *self.tokens_T]

    @property
    def padded(self) -> dict[str, NDArray[Any]]:
        """The inputs for each of the P + T − 1 predicted tokens; 0, and so no gradient, for those of the prompt."""
        return {name: self._padded(values_T) for name, values_T in self.inputs.items()}

    @property
    def targets(self) -> NDArray[np.int64]:
        """The P + T − 1 predicted tokens; with `others_TK` 1 + K of each, 0 at those of the prompt."""
        own = np.array(self.sequence[1:], np.int64)
        return own if self.others_TK is None else np.column_stack([own, self._padded(self.others_TK)])

    def _padded(self, values_T: NDArray[Any]) -> NDArray[Any]:
        return np.concatenate([np.zeros((len(self.prompt_P) - 1, *values_T.shape[1:]), values_T.dtype), values_T])

    def of_completion(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """The log-probabilities of the completion, (T,) or (T, 1 + K), of those of all predicted tokens.

        Raises:
            MalformedAnswerError: as `checked_logprobs`.
        """
        shape = (len(self.tokens_T), *self.targets.shape[1:])
        flat = np.asarray(values[-shape[0] :]).ravel().tolist()
        return checked_logprobs(flat, math.prod(shape), "a trained answer").reshape(shape)


@dataclass(frozen=True)
class Adam:
    """AdamW's settings in one step; a `grad_clip_norm` of 0 clips nothing."""

    learning_rate: float
    beta1: float
    beta2: float
    eps: float
    grad_clip_norm: float


@dataclass(frozen=True)
class StepResult:
    """What a train step reports: how many datums it trained on, the tokens that this is charged for, the trainer's log-probabilities
    of each datum's completion before the step, (T,), and whatever else the backend measures."""

    examples: int = 0
    tokens: int = 0
    logprobs: Sequence[NDArray[np.float64]] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Checkpoint:
    """Where the weights after a step are: the full state to resume from, and the frozen copy to sample from."""

    state_path: str
    sampler_path: str


@dataclass(frozen=True)
class Saved:
    """What saved weights are: an adapter of `base_model`, of a rank (None: the backend does not tell)."""

    base_model: str
    rank: int | None = None


class Trainer(Protocol):
    """The student being trained. After an error it is not used again: its weights may or may not have taken the step.

    Its methods raise `TrainerLostError`, too, where it is gone and another one has to be opened.
    """

    async def step(self, datums: Sequence[Datum], loss: str, parameters: Mapping[str, float], adam: Adam) -> StepResult:
        """One forward-backward pass over at least one datum and one optimizer step.

        Args:
            loss, parameters: one of learning/losses.py, with all its parameters.
        """

    async def logprobs(self, datums: Sequence[Datum]) -> list[NDArray[np.float64]]:
        """Log-probabilities of all targets of each datum's completion, (T,) or (T, 1 + K), under the weights as they are."""

    async def save(self, name: str, ttl_s: int | None) -> Checkpoint:
        """Save state and sampler weights under `name`; what half a save left under it is replaced.

        Both are deleted `ttl_s` seconds later; None means never.
        """


class Backend(Protocol):
    """One that is open for a run: serves the student and, if the run has one, the teacher, which share the tokenizer."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    async def sample(
        self,
        weights: Weights,
        prompt_P: Sequence[int],
        count: int,
        params: SamplingParams,
        *,
        seeds: Sequence[int] | None = None,
    ) -> list[SampledAnswer]:
        """`count` independent answers to one prompt; with `seeds`, one for each, the same ones every time."""

    async def logprobs(self, weights: Weights, prompt_P: Sequence[int], tokens_T: Sequence[int]) -> NDArray[np.float32]:
        """Log-probability of each of the T tokens after the prompt and its predecessors, at temperature 1."""

    async def choices(
        self, weights: Weights, prompt_P: Sequence[int], tokens_T: Sequence[int], k: int
    ) -> tuple[NDArray[np.float32], Choices]:
        """`logprobs`, and the `k` likeliest tokens at each of the T positions."""

    async def open_trainer(self, state_path: str | None, *, weights_only: bool = False) -> Trainer:
        """A trainer with exactly the weights and optimizer of a saved state; None: a fresh adapter, by the run's seed. `weights_only`
        leaves the optimizer fresh, and is said only where a run starts from weights of another one (`tinker.start_from`)."""

    async def describe(self, path: str) -> Saved:
        """What saved weights are; asked of `tinker.start_from` and of teachers that are saved weights. PolicyError: they are not there."""

    async def delete(self, paths: Collection[str]) -> int:
        """Delete saved weights; those that are gone already are fine. Returns how many were deleted."""

    async def keep(self, paths: Collection[str]) -> None:
        """Take the expiry from saved weights."""

    def abort(self) -> None:
        """End at once what runs in this machine, from any thread; the backend is still to be closed."""


@dataclass(frozen=True)
class Readiness:
    """What a backend says of itself before a run: a finding for each thing that it looked at."""

    findings: Sequence[Finding] = ()
    context: Mapping[str, int] = field(default_factory=dict)
    """Model -> tokens of the longest sequence, prompt and answer, that it takes; without an entry where the backend does not tell."""
    checkpoint_bytes: int = 0
    """What one step's weights take in the run's folder."""
    saved: Mapping[str, Saved | PolicyError] = field(default_factory=dict)
    """Key of the configuration -> what the saved weights that it names are, or that they are not there. No finding: a run that has begun
    may do without those that it started from."""


@runtime_checkable
class Provider(Protocol):
    """What a backend is before it is open."""

    def embedded(self, config: RunConfig) -> bool:
        """Whether it lives in the run's own folder: then one process at a time may open it, and its tokens cost nothing."""

    async def check(self, config: RunConfig) -> Readiness:
        """Whether it would open for a run, has its models and can train the student: asked once, and told within half a minute.

        What is wrong is a finding, not an error. Another one may follow, since a service may be busy.
        """

    def tokenizer(self, config: RunConfig, model: str) -> Tokenizer:
        """The tokenizer of a model. Raises PolicyError when it cannot be loaded."""

    def open(self, config: RunConfig, tell: Callable[[str], None]) -> AbstractAsyncContextManager[Backend]:
        """Open it for a run; it is closed when the context is left, however that happens.

        Args:
            tell: takes a line for the user, from any thread.

        Raises:
            PolicyError: it has no such student or teacher, or a key is missing.
        """

    async def export(self, config: RunConfig, state_path: str, name: str, folder: Path) -> list[Path]:
        """Write the adapter saved at `state_path` into `folder` as files for other programs (peft's format); the run need not be open."""


def check_start(config: RunConfig, saved: Saved) -> None:
    """PolicyError where a run cannot start from the saved weights that it names (`tinker.start_from`)."""
    section = config.tinker
    if saved.base_model != section.student:
        raise PolicyError(
            f"tinker.start_from: {section.start_from} was trained on {saved.base_model!r}, and the student is {section.student!r}",
            f'set tinker.student = "{saved.base_model}", or start from another state',
        )
    if saved.rank not in (None, section.lora_rank):
        raise PolicyError(
            f"tinker.start_from: {section.start_from} has rank {saved.rank}, and tinker.lora_rank is {section.lora_rank}",
            f"set tinker.lora_rank = {saved.rank}",
        )


def wanted_models(config: RunConfig) -> dict[str, str]:
    """Key of the configuration -> the model that it names, of every model that a run samples or scores with; the first is trained.

    Teachers that are saved weights are not among them: no list of models has them (`Backend.describe`).
    """
    models = {"tinker.student": config.tinker.student, **config.tinker.named_teachers}
    return {key: name for key, name in models.items() if not name.startswith(SAVED)}


def check_same_tokens(student: Chat, teacher: Chat, prompts: Sequence[list[dict[str, str]]]) -> None:
    """Student and teacher must turn text into the same token ids, or the teacher would score other texts.

    Compared are the vocabularies and every given prompt through both chat templates.

    Raises:
        PolicyError: they differ; the message says in what.
    """
    ours, theirs = student.tokenizer.get_vocab(), teacher.tokenizer.get_vocab()
    different = [token for token, index in ours.items() if theirs.get(token) != index]
    if different:
        raise PolicyError(
            f"student and teacher have different tokenizers: {len(different)} of {len(ours)} tokens differ (such as {different[0]!r})",
            "token-level distillation needs one tokenizer; take a teacher of the student's family or set learning.kl_weight = 0",
        )
    for messages in prompts:
        if student.encode(messages) != teacher.encode(messages):
            raise PolicyError(
                "student and teacher render the same chat messages to different tokens: their chat templates differ",
                "take a teacher whose chat template is the student's",
            )
