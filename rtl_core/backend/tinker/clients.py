"""The clients of a run on its services: sampling, scores, the trainer and saved weights."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
import tinker
from tinker import types
from tinker.types.topk_logprobs import TopkLogprobs

from localtinker.bridge.capabilities import FROZEN_SAMPLERS, SAMPLE_FIRST
from localtinker.client import weights
from rtl_core.at_work import outstanding
from rtl_core.backend.base import (
    SERVER_HINT,
    SampledAnswer,
    SamplingParams,
    Saved,
    Weights,
    checked_choices,
    checked_logprobs,
)
from rtl_core.backend.tinker import checkpoints
from rtl_core.backend.tinker.connect import load_tokenizer
from rtl_core.backend.tinker.faults import (
    SamplerLostError,
    sampler_errors,
    sdk_errors,
    trainer_errors,
)
from rtl_core.backend.tinker.marks import has_console
from rtl_core.backend.tinker.sessions import OpenSession, Sessions
from rtl_core.backend.tinker.training import TinkerTrainer, open_training_client
from rtl_core.config import RunConfig
from rtl_core.errors import MalformedAnswerError, PolicyError, UserError, WeightsGoneError
from rtl_core.learning.distributions import Choices
from rtl_core.types.numbers import Floats32, Ints
from rtl_core.types.tokenizer import TokenIds, Tokenizer
from rtl_grader.work import all_of

OF_KILLED = "; the engine keeps the place of a killed run's client for about 300 s"
MOST_SAMPLERS = 5
"""Maximum number of cached sampling clients, in addition to one per teacher of `tinker.teachers`."""


class TinkerBackend:
    """Clients of a run on the student's and the teachers' service, which are usually the same. They are
    opened on first use and reopened when they may be broken. A failure of one service does not affect the
    clients of the other.

    Lost objects are replaced if a retry can then succeed: a session that the service ended (sessions.py), a
    sampling client that it dropped, and sampler weights that no longer exist, which are saved again from
    the state of the same name.
    """

    def __init__(self, student: Sessions, teacher: Sessions, config: RunConfig) -> None:
        self.tokenizer: Tokenizer = load_tokenizer(config.tinker.student, config)
        self._student, self._teacher = student, teacher
        self._config = config
        self._saved_again: dict[str, str] = {}
        """Mapping of lost sampler weights to their replacement."""
        self._trained = False
        """Whether a trainer was opened before. A second one replaces one that failed."""

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
        # No timeout and no retries here: the SDK has both, and a capacity pause can last hours.
        prompt = types.ModelInput.from_ints(list(prompt_P))
        # Samples of one request that share a seed would be identical.
        parts = [(count, None)] if seeds is None else [(1, seed) for seed in seeds]
        shape = {**vars(params), "stop": list(params.stop)}
        k = shape.pop("likeliest")
        async with self._sampler(weights) as client:
            requests = [
                client.sample(
                    prompt,
                    number,
                    types.SamplingParams(**shape, seed=seed),
                    topk_sample_logprobs=k,
                )
                for number, seed in parts
            ]
            # All or none: they are retried together.
            sampling = all_of(request.coroutine() for request in requests)
            responses = await outstanding("sample", sampling)
            answers = []
            for response in responses:
                for number, one in enumerate(response.sequences):
                    answer = SampledAnswer.checked(
                        list(one.tokens),
                        one.logprobs,
                        str(one.stop_reason) == "stop",
                        tokenizer or self.tokenizer,
                        params,
                    )
                    choices = None
                    if k:
                        choices = _choices(one.topk_logprobs_np, len(one.tokens), k)
                    # All but the first sample of a request are billed as if they read the prompt from the cache.
                    cached = len(prompt_P) if number else response.prompt_cache_hit_tokens
                    answers.append(replace(answer, choices=choices, n_cached=cached))
            if len(answers) != count:
                raise MalformedAnswerError(
                    f"{count} samples were requested, but {len(answers)} returned", SERVER_HINT
                )
        return answers

    async def logprobs(
        self, weights: Weights, prompt_P: TokenIds, tokens_T: TokenIds
    ) -> Floats32:
        async with self._scored(weights, prompt_P, tokens_T) as (scores_T, _):
            return scores_T

    async def choices(
        self, weights: Weights, prompt_P: TokenIds, tokens_T: TokenIds, k: int
    ) -> tuple[Floats32, Choices]:
        async with self._scored(weights, prompt_P, tokens_T, topk_prompt_logprobs=k) as (
            scores_T,
            answer,
        ):
            return scores_T, _choices(answer.topk_prompt_logprobs_np, len(tokens_T), k)

    async def logprobs_of(
        self,
        weights: Weights,
        prompt_P: TokenIds,
        tokens_T: TokenIds,
        ids_TK: Ints,
    ) -> tuple[Floats32, Floats32]:
        length, (count, k) = len(prompt_P) - 1, ids_TK.shape
        # Sparse: the rows of the prompt are empty.
        rows = [*[0] * length, *range(0, ids_TK.size + 1, k)]
        columns = [*range(k)] * count
        named = types.TensorData(ids_TK.ravel(), "int64", [length + count, k], rows, columns)
        async with self._scored(weights, prompt_P, tokens_T, target_prompt_logprobs=named) as (
            scores_T,
            answer,
        ):
            target = answer.target_prompt_logprobs
            values = [] if target is None else target.data[-ids_TK.size :]
            values_N = checked_logprobs(values, ids_TK.size, "a list of named tokens")
        return scores_T, values_N.reshape(count, k).astype(np.float32)

    @asynccontextmanager
    async def _scored(
        self, weights: Weights, prompt_P: TokenIds, tokens_T: TokenIds, **asked: Any
    ) -> AsyncIterator[tuple[Floats32, types.SampleResponse]]:
        """Yield the scores of a completion, and the answer to what else was `asked` of the same request."""
        full, count = types.ModelInput.from_ints([*prompt_P, *tokens_T]), len(tokens_T)
        async with self._sampler(weights) as client:
            # As in the SDK's `compute_logprobs`: a token must be sampled, but is not used. Only the completion is
            # scored, so that a cached prompt is not billed twice.
            request = client.sample(
                full,
                1,
                types.SamplingParams(max_tokens=1),
                include_prompt_logprobs=True,
                prompt_logprobs_last_n=count,
                **asked,
            )
            answer = await outstanding("compute_logprobs", request)
            scores_T = checked_logprobs(
                (answer.prompt_logprobs or [])[-count:], count, "a score"
            )
            yield scores_T.astype(np.float32), answer

    async def open_trainer(
        self, state_path: str | None, *, weights_only: bool = False
    ) -> TinkerTrainer:
        session = await self._student.current()
        trainer = None
        if session.spare is not None and session.spare[0] == state_path and not weights_only:
            _, trainer = session.spare
            session.spare = None
        if trainer is None:
            trainer = await self._new_trainer(session, state_path, weights_only)
        if self._trained:
            self._student.tell(
                "the trainer was opened again from the last saved state; the current step is repeated"
            )
        self._trained = True
        return trainer

    async def _new_trainer(
        self, session: OpenSession, state_path: str | None, weights_only: bool = False
    ) -> TinkerTrainer:
        endpoint = self._student.endpoint
        with session.using():
            opening = self._student.pauses.retry_unpaid(
                lambda: open_training_client(
                    session.service, self._config, state_path, weights_only, endpoint.marks
                )
            )
            lacks = self._student.endpoint.lacks
            what = f"open a training client{OF_KILLED if lacks else ''}"
            client = await outstanding(what, opening)
        errors = partial(session.using, trainer_errors)
        trainer = TinkerTrainer(client, errors, endpoint.marks, session.newest)
        if has_console(endpoint.base_url):
            trainer.console_url = client.get_console_url()
            self._student.tell(f"the training run in Tinker's console: {trainer.console_url}")
        return trainer

    async def describe(self, path: str) -> Saved:
        tinker = self._config.tinker
        of_teacher = path != tinker.start_from and path in tinker.named_teachers.values()
        with self._serving("teacher" if of_teacher else "student") as service, sdk_errors():
            return await checkpoints.describe(service.rest, path)

    async def delete(self, paths: Collection[str]) -> int:
        copies = {self._saved_again[path] for path in paths if path in self._saved_again}
        with sdk_errors():
            return await weights.delete(self._student.rest, {*paths, *copies})

    async def keep(self, paths: Collection[str]) -> None:
        with sdk_errors():
            now = [self._saved_again.get(path, path) for path in paths]
            await weights.keep(self._student.rest, now)

    def abort(self) -> None:
        for service in (self._student, self._teacher):
            service.endpoint.kill()

    @contextmanager
    def _serving(self, policy: Literal["student", "teacher"]) -> Iterator[Sessions]:
        """Yield the service of a policy. Errors of a separate teacher service are marked as such."""
        service = self._student if policy == "student" else self._teacher
        try:
            yield service
        except UserError as error:
            if service is self._student:
                raise
            raise type(error)(f"the teacher's service: {error.message}", error.hint) from error

    @asynccontextmanager
    async def _sampler(self, weights: Weights) -> AsyncIterator[tinker.SamplingClient]:
        """Yield the sampling client of some weights. It is dropped after an error, because it may be
        permanently broken."""
        begun = time.monotonic()
        with self._serving(weights.policy) as service:
            session = await service.current()
            with session.using():
                async with session.opening:
                    client = session.samplers.pop(weights, None)
                    if client is None or not self._can_sample(service, session, weights):
                        client = await self._open_sampler(service, session, weights)
                    # Few are used at a time: teacher, stale weights, the newest and evaluated ones.
                    most = MOST_SAMPLERS + len(self._config.tinker.teachers)
                    for old in list(session.samplers)[: 1 - most]:
                        del session.samplers[old]
                    session.samplers[weights] = client
                try:
                    with sampler_errors():
                        yield client
                except Exception as error:
                    if session.samplers.get(weights) is client:
                        del session.samplers[weights]
                        if isinstance(error, SamplerLostError):
                            session.newest.discard(self._path(weights))
                    raise
            service.pauses.note_success(begun, service)

    async def _open_sampler(
        self, on: Sessions, session: OpenSession, weights: Weights
    ) -> tinker.SamplingClient:
        def create(
            model_path: str | None = None, base_model: str | None = None
        ) -> Awaitable[tinker.SamplingClient]:
            return on.pauses.retry_unpaid(
                lambda: session.service.create_sampling_client(model_path, base_model)
            )

        if weights.path is None:
            models = {
                "student": self._config.tinker.student,
                "teacher": weights.model or self._config.tinker.teacher,
            }
            first = SAMPLE_FIRST in on.endpoint.lacks and not session.newest
            if first and weights.policy == "student":
                name = f"{self._config.run.name}-untrained"
                await self._save_with_spare(session, None, name)
            return await create(None, models[weights.policy])
        path, why = (
            self._path(weights),
            "the engine samples only weights of an open trainer, not",
        )
        if self._can_sample(on, session, weights):
            try:
                with sdk_errors():
                    return await create(path)
            except PolicyError as error:
                # An engine that lost its models refuses what it sampled before.
                if not isinstance(error, WeightsGoneError) and not on.endpoint.lacks:
                    raise
                why = "Tinker no longer had the sampler weights"
        again = await self._save_again(session, weights.path)
        self._saved_again[weights.path] = again
        on.tell(f"{why} {path}; they were saved again from the state of the same name")
        return await create(again)

    def _can_sample(self, on: Sessions, session: OpenSession, weights: Weights) -> bool:
        """Whether weights can be sampled as they are. An engine may sample only the newest weights of its
        training clients."""
        if weights.path is None or FROZEN_SAMPLERS not in on.endpoint.lacks:
            return True
        return self._path(weights) in session.newest

    def _path(self, weights: Weights) -> str:
        """Return where saved weights are now."""
        path = weights.path or ""
        return self._saved_again.get(path, path)

    async def _save_again(self, session: OpenSession, path: str) -> str:
        """Save sampler weights again from the state of the same name (`TinkerTrainer.save`). Returns their new path."""
        state = path.replace("/sampler_weights/", "/weights/", 1)
        try:
            return await self._save_with_spare(session, state, path.rsplit("/", 1)[-1])
        except WeightsGoneError as error:
            raise WeightsGoneError(
                f"neither {path} nor the state {state} is on the service: {error.message}",
                error.hint,
            ) from error

    async def _save_with_spare(self, session: OpenSession, state: str | None, name: str) -> str:
        """Save sampler weights with a new trainer, which a train step from `state` takes over. Returns their path."""
        trainer = await self._new_trainer(session, state)
        path = await trainer.save_for_sampler(name, self._config.checkpoints.ttl_s)
        session.spare = state, trainer
        return path


def _choices(top: TopkLogprobs | None, count: int, k: int) -> Choices:
    """Return the `k` likeliest tokens at the last `count` positions of an answer."""
    if top is None:
        raise MalformedAnswerError(
            f"the {k} likeliest tokens were requested, but none returned", SERVER_HINT
        )
    return checked_choices(top.token_ids[-count:], top.logprobs[-count:], count, k)
