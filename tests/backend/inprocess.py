"""A backend that is not a Tinker client: the embedded engine in this process, without HTTP and the SDK's clients.

Selected with `backend.name = "tests.backend.inprocess:BACKEND"`. `backend.options` may set `threads`.
"""

import asyncio
import itertools
import shutil
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import AutoConfig, AutoTokenizer

from localtinker import requests as rq
from localtinker.errors import NotFoundError, RequestError
from localtinker.futures import Future
from localtinker.lora import LoraSpec
from localtinker.registry import Registry
from localtinker.service import Service
from localtinker.settings import Settings, context_of
from localtinker.wire import TrainDatum, TrainRequest, pb
from rtl_core.backend.base import (
    SAVED,
    Adam,
    Backend,
    Check,
    Checkpoint,
    Datum,
    Readiness,
    SampledAnswer,
    SamplingParams,
    Saved,
    StepResult,
    Weights,
    checked_choices,
    checked_logprobs,
)
from rtl_core.config import RunConfig
from rtl_core.errors import (
    BackendUnavailableError,
    PolicyError,
    TrainerLostError,
    UserError,
    WeightsGoneError,
)
from rtl_core.learning.distributions import Choices
from rtl_core.tinymodels import model_path
from rtl_core.types.finding import Finding
from rtl_core.types.tokenizer import Tokenizer


@contextmanager
def errors_of_ours(missing: type[UserError] = WeightsGoneError) -> Iterator[None]:
    try:
        yield
    except NotFoundError as error:
        raise missing(error.message) from error
    except RequestError as error:
        raise PolicyError(error.message) from error


async def answer_of(future: Future) -> Any:
    """Return the answer to a request: bytes of protobuf, or a JSON object."""
    answer = await asyncio.shield(future.answer)
    if isinstance(answer, dict) and "error" in answer:
        kind = PolicyError if answer["category"] == "user" else BackendUnavailableError
        raise kind(answer["error"])
    return answer


class InProcessTrainer:
    def __init__(self, service: Service, model_id: str) -> None:
        self._service, self._model_id = service, model_id
        self._numbers = itertools.count(1)  # 0 was used to create the client

    async def step(
        self,
        datums: Sequence[Datum],
        loss: str,
        parameters: Mapping[str, float],
        adam: Adam,
        check: Check | None = None,
    ) -> StepResult:
        with errors_of_ours(TrainerLostError):
            backward = self._service.forward_backward(self._request(datums, loss, parameters))
            output = pb.ForwardBackwardOutput.FromString(await answer_of(backward))
            logprobs = [
                one if one.ndim == 1 else one[:, 0] for one in logprobs_of(output, datums)
            ]
            if check is not None:
                check(logprobs)
            params = rq.AdamParams(**vars(adam))
            optim = self._service.optim_step(
                rq.OptimStep(
                    model_id=self._model_id, seq_id=next(self._numbers), adam_params=params
                )
            )
            metrics = {**output.metrics, **(await answer_of(optim))["metrics"]}
        return StepResult(
            examples=len(datums),
            tokens=sum(len(d.sequence) - 1 for d in datums),
            logprobs=logprobs,
            metrics=metrics,
        )

    async def logprobs(self, datums: Sequence[Datum]) -> list[NDArray[np.float64]]:
        with errors_of_ours(TrainerLostError):
            request = self._request(datums, "cross_entropy", {}, forward_only=True)
            answer = await answer_of(self._service.forward_backward(request))
        return logprobs_of(pb.ForwardBackwardOutput.FromString(answer), datums)

    def _request(
        self,
        datums: Sequence[Datum],
        loss: str,
        parameters: Mapping[str, float],
        forward_only: bool = False,
    ) -> TrainRequest:
        data = [
            TrainDatum(np.array(d.sequence[:-1]), {"target_tokens": d.targets, **d.padded})
            for d in datums
        ]
        return TrainRequest(
            self._model_id, next(self._numbers), loss, dict(parameters), forward_only, data
        )

    async def save(self, name: str, ttl_s: int | None) -> Checkpoint:
        saved: dict[str, Any] = {
            "model_id": self._model_id,
            "path": name,
            "ttl_seconds": ttl_s,
            "overwrite": True,
        }
        with errors_of_ours(TrainerLostError):
            state = self._service.save(rq.SaveWeights(**saved))
            sampler = self._service.save(rq.SaveWeightsForSampler(**saved))
            return Checkpoint(
                (await answer_of(state))["path"], (await answer_of(sampler))["path"]
            )


def logprobs_of(output: Any, datums: Sequence[Datum]) -> list[NDArray[np.float64]]:
    (record,) = output.loss_fn_outputs
    values = np.frombuffer(record.fields["logprobs"].data, np.float32)
    ends = np.cumsum([d.targets.size for d in datums])[:-1]
    return [
        d.completion_logprobs(one.reshape(d.targets.shape))
        for one, d in zip(np.split(values, ends), datums, strict=True)
    ]


def choices_of(top: Any, count: int, k: int) -> Choices:
    parts = np.frombuffer(top.token_ids, np.int32), np.frombuffer(top.logprobs, np.float32)
    ids_TK, values_TK = (part.reshape(top.length, top.k)[-count:] for part in parts)
    return checked_choices(ids_TK, values_TK, count, k)


class InProcess:
    def __init__(self, service: Service, config: RunConfig) -> None:
        self.tokenizer = BACKEND.tokenizer(config, config.tinker.student)
        self._service, self._config = service, config
        self._session = str(uuid.uuid4())
        service.registry.add_session(self._session, None, None)
        self._clients = itertools.count()

    async def sample(
        self,
        weights: Weights,
        prompt_P: Sequence[int],
        count: int,
        params: SamplingParams,
        *,
        seeds: Sequence[int] | None = None,
        tokenizer: Tokenizer | None = None,
    ) -> list[SampledAnswer]:
        requests = [
            self._ask(
                weights,
                prompt_P,
                num_samples=count if seeds is None else 1,
                topk_sample_logprobs=params.likeliest,
                sampling_params=rq.SamplingParams(
                    **{**vars(params), "stop": list(params.stop)}, seed=seed
                ),
            )
            for seed in ([None] if seeds is None else seeds)
        ]
        answers = []
        for response in await asyncio.gather(*requests):
            for number, one in enumerate(response.sequences):
                answer = SampledAnswer.checked(
                    np.frombuffer(one.tokens, np.int32).tolist(),
                    np.frombuffer(one.logprobs, np.float32).tolist(),
                    one.stop_reason == pb.STOP_REASON_STOP,
                    tokenizer or self.tokenizer,
                    params,
                )
                if params.likeliest:
                    choices = choices_of(
                        one.topk_sampled_logprobs, len(answer.tokens_T), params.likeliest
                    )
                    answer = replace(answer, choices=choices)
                cached = len(prompt_P) if number else response.prompt_cache_hit_tokens
                answers.append(replace(answer, n_cached=cached))
        return answers

    async def logprobs(
        self, weights: Weights, prompt_P: Sequence[int], tokens_T: Sequence[int]
    ) -> NDArray[np.float32]:
        count = len(tokens_T)
        nothing = rq.SamplingParams(max_tokens=1)
        asked = {
            "prompt_logprobs": True,
            "prompt_logprobs_last_n": count,
            "sampling_params": nothing,
        }
        response = await self._ask(weights, [*prompt_P, *tokens_T], **asked)
        scores = np.frombuffer(response.prompt_logprobs, np.float32)[-count:].tolist()
        return checked_logprobs(scores, count, "a score").astype(np.float32)

    async def choices(
        self, weights: Weights, prompt_P: Sequence[int], tokens_T: Sequence[int], k: int
    ) -> tuple[NDArray[np.float32], Choices]:
        tokens, nothing = [*prompt_P, *tokens_T], rq.SamplingParams(max_tokens=1)
        asked = {"prompt_logprobs": True, "topk_prompt_logprobs": k, "sampling_params": nothing}
        top = (await self._ask(weights, tokens, **asked)).topk_prompt_logprobs
        scores_T = await self.logprobs(weights, prompt_P, tokens_T)
        return scores_T, choices_of(top, len(tokens_T), k)

    async def logprobs_of(
        self,
        weights: Weights,
        prompt_P: Sequence[int],
        tokens_T: Sequence[int],
        ids_TK: NDArray[np.int64],
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        nothing = np.full((len(prompt_P) - 1, ids_TK.shape[1]), -1)
        ids = np.concatenate([nothing, ids_TK])
        named = rq.TensorData(data=ids.ravel().tolist(), dtype="int64", shape=list(ids.shape))
        response = await self._ask(
            weights,
            [*prompt_P, *tokens_T],
            target_prompt_logprobs=named,
            sampling_params=rq.SamplingParams(max_tokens=1),
        )
        values = np.frombuffer(response.target_prompt_logprobs.dense, np.float32)
        scores_T = await self.logprobs(weights, prompt_P, tokens_T)
        return scores_T, values[-ids_TK.size :].reshape(ids_TK.shape)

    async def _ask(
        self, weights: Weights, tokens: Sequence[int], **asked: Any
    ) -> pb.SampleResponse:
        names = {
            "student": self._config.tinker.student,
            "teacher": weights.model or self._config.tinker.teacher,
        }
        source = (
            {"model_path": weights.path}
            if weights.path
            else {"base_model": names[weights.policy]}
        )
        prompt = rq.Prompt(chunks=[rq.TextChunk(tokens=list(tokens))])
        with errors_of_ours():
            future = self._service.sample(rq.Sample(prompt=prompt, **source, **asked))
            return pb.SampleResponse.FromString(await answer_of(future))

    async def describe(self, path: str) -> Saved:
        with errors_of_ours(PolicyError):
            found = self._service.registry.checkpoint(path)
            return Saved(found.base_model, LoraSpec.model_validate_json(found.lora).rank)

    async def open_trainer(
        self, state_path: str | None, *, weights_only: bool = False
    ) -> InProcessTrainer:
        number, tinker = next(self._clients), self._config.tinker
        client: dict[str, Any] = {"session_id": self._session, "model_seq_id": number}
        with errors_of_ours():
            if state_path is None:
                lora = LoraSpec(rank=tinker.lora_rank, seed=self._config.run.seed)
                request = rq.CreateModel(**client, base_model=tinker.student, lora_config=lora)
                made = self._service.create_model(request)
            else:
                made = self._service.load_weights(
                    rq.LoadWeights(**client, path=state_path, optimizer=not weights_only)
                )
            return InProcessTrainer(self._service, (await answer_of(made))["model_id"])

    async def delete(self, paths: Collection[str]) -> int:
        deleted = 0
        for path in paths:
            try:
                self._service.registry.delete_checkpoint(path)
                deleted += 1
            except NotFoundError:
                continue
        return deleted

    async def keep(self, paths: Collection[str]) -> None:
        with errors_of_ours():
            for path in paths:
                self._service.registry.update_checkpoint(path, expires=None)

    def abort(self) -> None:
        """Nothing runs outside this process."""


class Wrapped:
    """A part of a backend that delegates to an inner one. Subclasses override methods."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class InProcessProvider:
    def __init__(
        self, around: Callable[[InProcess, RunConfig], Any] = lambda inner, config: inner
    ) -> None:
        """`around` wraps an opened backend."""
        self._around = around

    def embedded(self, config: RunConfig) -> bool:
        return True

    async def check(self, config: RunConfig) -> Readiness:
        try:
            models = models_of(config)
        except PolicyError as error:
            return Readiness(
                [Finding("models", "wrong", error.message, "name student and teacher")]
            )
        context = {
            name: context_of(AutoConfig.from_pretrained(path)) for name, path in models.items()
        }
        return Readiness(
            [Finding("models", "ok", f"in this process: {', '.join(models)}")], context
        )

    def tokenizer(self, config: RunConfig, model: str) -> Tokenizer:
        tokenizer: Tokenizer = AutoTokenizer.from_pretrained(models_of(config)[model])
        return tokenizer

    def open(
        self, config: RunConfig, tell: Callable[[str], None]
    ) -> AbstractAsyncContextManager[Backend]:
        return opened(config, self._around)

    async def stored(self, config: RunConfig) -> set[str]:
        registry = Registry(state_folder(config))
        paths = {saved.path for saved in registry.checkpoints()}
        registry.close()
        return paths

    async def export(
        self, config: RunConfig, state_path: str, name: str, folder: Path
    ) -> list[Path]:
        registry = Registry(state_folder(config))
        with errors_of_ours():
            source = registry.blob_path(registry.checkpoint(state_path).blob)
        registry.close()
        folder.mkdir(parents=True, exist_ok=True)
        return [Path(shutil.copy(file, folder)) for file in sorted(source.glob("adapter_*"))]


@asynccontextmanager
async def opened(
    config: RunConfig, around: Callable[[InProcess, RunConfig], Any]
) -> AsyncIterator[Backend]:
    settings = Settings(
        models=models_of(config),
        state=state_folder(config),
        threads=int(config.backend.options.get("threads", 1)),
        sampling_processes=0,
        deterministic=config.tinker.local_deterministic,
    )
    service = Service(settings)
    try:
        yield around(InProcess(service, config), config)
    finally:
        service.stop()


def state_folder(config: RunConfig) -> Path:
    return config.run.folder / "in-process"


def models_of(config: RunConfig) -> dict[str, Path]:
    named = {config.tinker.student, *config.tinker.named_teachers.values()}
    names = {name for name in named if not name.startswith(SAVED)}
    models: dict[str, Path] = {name: model_path(name) for name in ("student", "teacher")}
    models |= config.tinker.local_models
    if unknown := names - set(models):
        raise PolicyError(f"there is no model {', '.join(unknown)} here")
    return {name: models[name] for name in sorted(names)}


BACKEND = InProcessProvider()
