"""Tinker as a backend: the cloud, the embedded service that a run starts for itself, or any other URL, all through the `tinker` SDK."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

# The SDK reads these when it is imported or first used: no telemetry, and no wait for a hub that is not needed.
os.environ.setdefault("TINKER_TELEMETRY", "0")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import tinker
from numpy.typing import NDArray
from tinker import types

from rtl_core.backend.base import Backend, Readiness, SampledAnswer, Saved, Weights, checked_scores
from rtl_core.backend.registry import BACKENDS
from rtl_core.backend.tinker import checkpoints
from rtl_core.backend.tinker.asking import readiness
from rtl_core.backend.tinker.connect import (
    Endpoint,
    embedded_readiness,
    load_tokenizer,
    tinker_endpoint,
    tinker_session,
)
from rtl_core.backend.tinker.faults import translated
from rtl_core.backend.tinker.saved import describe
from rtl_core.backend.tinker.training import TinkerTrainer, open_training_client
from rtl_core.config import RunConfig
from rtl_core.types.tokenizer import Tokenizer

MOST_SAMPLERS = 5
"""Sampling clients that are kept, the last ones used; and one for each further teacher."""


class TinkerBackend:
    """The clients of one session on a service: opened when they are first needed, opened anew when they may be broken."""

    def __init__(self, service: tinker.ServiceClient, endpoint: Endpoint, config: RunConfig) -> None:
        self.tokenizer: Tokenizer = load_tokenizer(config.tinker.student, config)
        self.abort = endpoint.kill
        self._config = config
        self._service = service
        self._rest = tinker.RestClient(base_url=endpoint.base_url, api_key=endpoint.api_key)
        self._samplers: dict[Weights, tinker.SamplingClient] = {}
        self._lock = asyncio.Lock()

    async def sample(
        self,
        weights: Weights,
        prompt_P: Sequence[int],
        count: int,
        *,
        max_tokens: int,
        temperature: float,
        stop: Sequence[int],
        top_p: float = 1.0,
        seeds: Sequence[int] | None = None,
    ) -> list[SampledAnswer]:
        # No timeout and no retry here: the SDK has both, and a capacity pause can last hours.
        prompt = types.ModelInput.from_ints(list(prompt_P))
        # A seed shared by several samples of one request would give identical samples.
        asked = [(count, None)] if seeds is None else [(1, seed) for seed in seeds]
        async with self._sampler(weights) as client:
            requests = [
                client.sample(
                    prompt,
                    number,
                    types.SamplingParams(
                        max_tokens=max_tokens, temperature=temperature, top_p=top_p, seed=seed, stop=list(stop)
                    ),
                )
                for number, seed in asked
            ]
            responses = await asyncio.gather(*(request.coroutine() for request in requests))
        return [
            SampledAnswer.of(list(one.tokens), one.logprobs, str(one.stop_reason) == "stop", self.tokenizer, stop)
            for response in responses
            for one in response.sequences
        ]

    async def logprobs(self, weights: Weights, prompt_P: Sequence[int], tokens_T: Sequence[int]) -> NDArray[np.float32]:
        full = types.ModelInput.from_ints([*prompt_P, *tokens_T])
        async with self._sampler(weights) as client:
            # Scores the completion alone, so that a cached prompt is not paid twice.
            values = await client.compute_logprobs(full, prompt_logprobs_last_n=len(tokens_T))
        return checked_scores(values[-len(tokens_T) :], len(tokens_T))

    async def open_trainer(self, state_path: str | None, *, weights_only: bool = False) -> TinkerTrainer:
        with translated():
            return TinkerTrainer(await open_training_client(self._service, self._config, state_path, weights_only))

    async def describe(self, path: str) -> Saved:
        with translated():
            return await describe(self._rest, path)

    async def delete(self, paths: Collection[str]) -> int:
        with translated():
            return await checkpoints.delete(self._rest, paths)

    async def keep(self, paths: Collection[str]) -> None:
        with translated():
            for path in paths:
                await self._rest.set_checkpoint_ttl_from_tinker_path(path, None)

    @asynccontextmanager
    async def _sampler(self, weights: Weights) -> AsyncIterator[tinker.SamplingClient]:
        """The sampling client of some weights. A new path always gives a new client; so does what comes after an error, since a client
        whose requests failed may be broken for good."""
        try:
            with translated():
                async with self._lock:
                    client = self._samplers.pop(weights, None) or await self._open_sampler(weights)
                    # Few at a time are sampled from: the teacher, stale weights, the newest, evaluated ones.
                    most = MOST_SAMPLERS + len(self._config.tinker.teachers)
                    for old in list(self._samplers)[: 1 - most]:
                        del self._samplers[old]
                    self._samplers[weights] = client
                yield client
        except Exception:
            self._samplers = {}
            raise

    async def _open_sampler(self, weights: Weights) -> tinker.SamplingClient:
        models = {"student": self._config.tinker.student, "teacher": weights.model or self._config.tinker.teacher}
        source = {"model_path": weights.path} if weights.path else {"base_model": models[weights.policy]}
        client: tinker.SamplingClient = await self._service.create_sampling_client(**source)
        return client


class _Tinker:
    """See `Provider`."""

    def embedded(self, config: RunConfig) -> bool:
        return config.tinker.is_local

    async def check(self, config: RunConfig) -> Readiness:
        return embedded_readiness(config) if config.tinker.is_local else await readiness(config)

    def tokenizer(self, config: RunConfig, model: str) -> Tokenizer:
        return load_tokenizer(model, config)

    def open(self, config: RunConfig, tell: Callable[[str], None]) -> AbstractAsyncContextManager[Backend]:
        return _open(config, tell)

    async def export(self, config: RunConfig, state_path: str, name: str, folder: Path) -> list[Path]:
        if config.tinker.is_local:
            return checkpoints.copy_adapter(config, state_path, folder)
        endpoint = Endpoint(config.tinker.base_url)
        with translated():
            async with tinker_session(endpoint) as service:
                rest = tinker.RestClient(base_url=endpoint.base_url)
                return await checkpoints.download_adapter(service, rest, state_path, name, folder)


@asynccontextmanager
async def _open(config: RunConfig, tell: Callable[[str], None]) -> AsyncIterator[Backend]:
    with tinker_endpoint(config, tell) as endpoint:
        async with tinker_session(endpoint) as service:
            yield TinkerBackend(service, endpoint, config)


BACKENDS.register("tinker")(_Tinker())
