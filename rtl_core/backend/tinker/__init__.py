"""The Tinker backend, through the `tinker` SDK: the cloud, the embedded service that a run starts, or any other URL."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterator,
    Sequence,
)
from contextlib import (
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

# The SDK reads these when it is imported or first used.
os.environ.setdefault("TINKER_TELEMETRY", "0")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import tinker
from numpy.typing import NDArray
from tinker import types

from localtinker.client import weights
from rtl_core.at_work import outstanding
from rtl_core.backend.base import (
    SERVER_HINT,
    Backend,
    Readiness,
    SampledAnswer,
    SamplingParams,
    Saved,
    Weights,
    checked_choices,
    checked_logprobs,
)
from rtl_core.backend.registry import BACKENDS
from rtl_core.backend.tinker import checkpoints
from rtl_core.backend.tinker.connect import (
    Endpoint,
    load_tokenizer,
    tinker_endpoint,
    tinker_session,
)
from rtl_core.backend.tinker.embedded import (
    describe_saved,
    embedded_readiness,
    service_errors,
    temporary_folder,
)
from rtl_core.backend.tinker.faults import sampler_errors, sdk_errors, trainer_errors
from rtl_core.backend.tinker.pauses import Pauses, pauses_reported
from rtl_core.backend.tinker.readiness import remote_readiness, stored_weights
from rtl_core.backend.tinker.services import TinkerService, services_of
from rtl_core.backend.tinker.sessions import OpenSession, Sessions
from rtl_core.backend.tinker.training import TinkerTrainer, open_training_client
from rtl_core.config import RunConfig
from rtl_core.errors import MalformedAnswerError, UserError, WeightsGoneError
from rtl_core.learning.distributions import Choices
from rtl_core.types.tokenizer import Tokenizer

Entered = TypeVar("Entered")
Made = TypeVar("Made")
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
        prompt_P: Sequence[int],
        count: int,
        params: SamplingParams,
        *,
        seeds: Sequence[int] | None = None,
    ) -> list[SampledAnswer]:
        # No timeout and no retries here: the SDK has both, and a capacity pause can last hours.
        prompt = types.ModelInput.from_ints(list(prompt_P))
        # Samples of one request that share a seed would be identical.
        parts = [(count, None)] if seeds is None else [(1, seed) for seed in seeds]
        shape = {**vars(params), "stop": list(params.stop)}
        async with self._sampler(weights) as client:
            requests = [
                client.sample(prompt, number, types.SamplingParams(**shape, seed=seed))
                for number, seed in parts
            ]
            responses = await outstanding(
                "sample", _all_or_none([request.coroutine() for request in requests])
            )
            answers = [
                SampledAnswer.checked(
                    list(one.tokens),
                    one.logprobs,
                    str(one.stop_reason) == "stop",
                    self.tokenizer,
                    params,
                )
                for response in responses
                for one in response.sequences
            ]
            if len(answers) != count:
                raise MalformedAnswerError(
                    f"{count} samples were requested, but {len(answers)} returned", SERVER_HINT
                )
        return answers

    async def logprobs(
        self, weights: Weights, prompt_P: Sequence[int], tokens_T: Sequence[int]
    ) -> NDArray[np.float32]:
        full = types.ModelInput.from_ints([*prompt_P, *tokens_T])
        async with self._sampler(weights) as client:
            # Score only the completion, so that a cached prompt is not billed twice.
            request = client.compute_logprobs(full, prompt_logprobs_last_n=len(tokens_T))
            values = await outstanding("compute_logprobs", request)
            scores_T = checked_logprobs(values[-len(tokens_T) :], len(tokens_T), "a score")
        return scores_T.astype(np.float32)

    async def choices(
        self, weights: Weights, prompt_P: Sequence[int], tokens_T: Sequence[int], k: int
    ) -> tuple[NDArray[np.float32], Choices]:
        full, count = types.ModelInput.from_ints([*prompt_P, *tokens_T]), len(tokens_T)
        async with self._sampler(weights) as client:
            # As in `compute_logprobs`: a token must be sampled, but is not used.
            request = client.sample(
                full,
                1,
                types.SamplingParams(max_tokens=1),
                include_prompt_logprobs=True,
                topk_prompt_logprobs=k,
                prompt_logprobs_last_n=count,
            )
            answer = await outstanding("sample", request)
            scores_T = checked_logprobs(
                (answer.prompt_logprobs or [])[-count:], count, "a score"
            )
            top = answer.topk_prompt_logprobs_np
            if top is None:
                raise MalformedAnswerError(
                    f"the {k} likeliest tokens were requested, but none returned", SERVER_HINT
                )
            choices = checked_choices(top.token_ids[-count:], top.logprobs[-count:], count, k)
        return scores_T.astype(np.float32), choices

    async def open_trainer(
        self, state_path: str | None, *, weights_only: bool = False
    ) -> TinkerTrainer:
        session = await self._student.current()
        with session.using():
            opening = self._student.pauses.retry_unpaid(
                lambda: open_training_client(
                    session.service, self._config, state_path, weights_only
                )
            )
            client = await outstanding("open a training client", opening)
        if self._trained:
            self._student.tell(
                "the trainer was opened again from the last saved state; the current step is repeated"
            )
        self._trained = True
        return TinkerTrainer(client, partial(session.using, trainer_errors))

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
            for path in paths:
                await self._student.rest.set_checkpoint_ttl_from_tinker_path(
                    self._saved_again.get(path, path), None
                )

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
                    client = session.samplers.pop(weights, None) or await self._open_sampler(
                        service, session, weights
                    )
                    # Few are used at a time: teacher, stale weights, the newest and evaluated ones.
                    most = MOST_SAMPLERS + len(self._config.tinker.teachers)
                    for old in list(session.samplers)[: 1 - most]:
                        del session.samplers[old]
                    session.samplers[weights] = client
                try:
                    with sampler_errors():
                        yield client
                except Exception:
                    if session.samplers.get(weights) is client:
                        del session.samplers[weights]
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
            return await create(None, models[weights.policy])
        path = self._saved_again.get(weights.path, weights.path)
        try:
            with sdk_errors():
                return await create(path)
        except WeightsGoneError as error:
            self._saved_again[weights.path] = await self._save_again(session, path, error)
            on.tell(
                f"Tinker no longer had the sampler weights {path}; they were saved again from the "
                "state of the same name"
            )
            return await create(self._saved_again[weights.path])

    async def _save_again(self, session: OpenSession, path: str, gone: WeightsGoneError) -> str:
        """Save sampler weights again from the state of the same name (`TinkerTrainer.save`). Returns their new path."""
        state = path.replace("/sampler_weights/", "/weights/", 1)
        try:
            with sdk_errors():
                client = await session.service.create_training_client_from_state(state)
                weights = await client.save_weights_for_sampler(
                    path.rsplit("/", 1)[-1], ttl_seconds=self._config.checkpoints.ttl_s
                )
        except WeightsGoneError as error:
            raise WeightsGoneError(
                f"neither {path} nor the state {state} is on the service: {error.message}",
                error.hint,
            ) from gone
        return str(weights.path)


class _Tinker:
    """See `Provider`."""

    def embedded(self, config: RunConfig) -> bool:
        return config.tinker.is_local

    async def check(self, config: RunConfig) -> Readiness:
        parts = await asyncio.gather(*(_readiness(service) for service in services_of(config)))
        return parts[0] if len(parts) == 1 else _combined(*parts)

    def tokenizer(self, config: RunConfig, model: str) -> Tokenizer:
        return load_tokenizer(model, config)

    @asynccontextmanager
    async def open(
        self, config: RunConfig, tell: Callable[[str], None]
    ) -> AsyncIterator[Backend]:
        services = services_of(config)
        async with AsyncExitStack() as stack:
            reported = stack.enter_context(
                pauses_reported(
                    tell, services=sum(not service.is_local for service in services)
                )
            )
            opened = []
            for service in services:
                line = (
                    tell if service.part != "teacher" else lambda text: tell(f"teacher: {text}")
                )
                if service.is_local and service.part == "teacher":
                    stack.enter_context(temporary_folder(service.state))
                endpoint = await stack.enter_async_context(
                    in_thread(tinker_endpoint(service, line))
                )
                # The embedded service needs no credit, and its answers do not show that another service serves again.
                pauses = Pauses(line) if service.is_local else reported
                opened.append(await stack.enter_async_context(Sessions(endpoint, pauses, line)))
            yield TinkerBackend(opened[0], opened[-1], config)

    async def stored(self, config: RunConfig) -> set[str]:
        service = services_of(config)[0]
        if service.is_local:
            from localtinker.registry import live_checkpoints

            with service_errors():
                return set(live_checkpoints(service.state))
        with sdk_errors():
            return await stored_weights(service)

    async def export(
        self, config: RunConfig, state_path: str, name: str, folder: Path
    ) -> list[Path]:
        if config.tinker.is_local:
            return checkpoints.copy_adapter(config, state_path, folder)
        endpoint = Endpoint(config.tinker.base_url)
        with sdk_errors():
            async with tinker_session(endpoint) as service:
                rest = tinker.RestClient(base_url=endpoint.base_url)
                return await checkpoints.download_adapter(
                    service, rest, state_path, name, folder
                )


async def _all_or_none(work: Sequence[Coroutine[Any, Any, Made]]) -> list[Made]:
    """Return all results. If one fails, cancel the others, because all are retried together."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def _readiness(service: TinkerService) -> Readiness:
    return embedded_readiness(service) if service.is_local else await remote_readiness(service)


def _combined(student: Readiness, teacher: Readiness) -> Readiness:
    """Merge the readiness of the student's and the teachers' service. Findings of the latter are marked as such."""
    findings = list(student.findings)
    for finding in teacher.findings:
        if not finding.about.startswith("tinker."):
            finding = replace(finding, about=f"teacher: {finding.about}")
        findings.append(finding)
    context, saved = {**teacher.context, **student.context}, {**student.saved, **teacher.saved}
    return Readiness(findings, context, student.checkpoint_bytes, saved)


@asynccontextmanager
async def in_thread(context: AbstractContextManager[Entered]) -> AsyncIterator[Entered]:
    """Enter a slow context manager in a thread. If cancelled while entering, exit it afterwards."""
    entering = asyncio.create_task(asyncio.to_thread(context.__enter__))
    try:
        await asyncio.shield(entering)
    except asyncio.CancelledError:
        await asyncio.wait([entering])
        if entering.exception() is None:
            context.__exit__(None, None, None)
        raise
    with ExitStack() as stack:
        stack.push(context.__exit__)
        yield entering.result()


BACKENDS.register("tinker")(_Tinker())


async def base_model_of(config: RunConfig, path: str) -> str:
    """Return the base model of the adapter saved at `path` on the configuration's service. The embedded
    service knows the weights of all runs in `run.directory`. Raises PolicyError if the service has no such
    weights, or a key is missing."""
    service = services_of(config)[0]
    if service.is_local:
        return describe_saved(service, path, "--model").base_model
    with tinker_endpoint(service, lambda _: None) as endpoint, sdk_errors():
        rest = tinker.RestClient(base_url=endpoint.base_url, api_key=endpoint.api_key)
        return (await checkpoints.describe(rest, path)).base_model
