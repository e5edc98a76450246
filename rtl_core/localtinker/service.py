"""The service's logic between HTTP and the compute thread: what each request means, checked and queued."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rtl_core.localtinker import requests as rq
from rtl_core.localtinker.decoder import DenseDecoder
from rtl_core.localtinker.engine import DecoderPool, Engine, SamplerKey
from rtl_core.localtinker.errors import NotFoundError, RequestError
from rtl_core.localtinker.futures import Future, FutureStore
from rtl_core.localtinker.lora import LoraSpec, read_adapter
from rtl_core.localtinker.models import ServedModel, load_model
from rtl_core.localtinker.registry import Registry, parse_path
from rtl_core.localtinker.sampling import SampleRequest
from rtl_core.localtinker.trainer import TrainingModel
from rtl_core.localtinker.wire import TrainRequest, encode_sample_response, encode_train_output

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Settings:
    """How the service runs. Sizes in bytes unless named otherwise."""

    models: dict[str, Path]
    state: Path
    dtype: str = "float32"
    device: str = "cpu"
    threads: int = 2
    deterministic: bool = False
    max_context: int = 32768
    micro_tokens: int = 4096
    cache_bytes: int = 1 << 30
    snapshot_bytes: int = 512 << 20


@dataclass
class _Client:
    """A training client: its record and, once created on the compute thread, its model."""

    model_id: str
    base_model: str
    spec: LoraSpec
    model: TrainingModel | None = None
    last_used: float = field(default_factory=time.monotonic)


class Service:
    """One running service. Methods are called on the event loop; work goes to the engine's thread."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        settings.state.mkdir(parents=True, exist_ok=True)
        self.models: dict[str, ServedModel] = {
            name: load_model(name, path, dtype=settings.dtype, device=settings.device, max_context=settings.max_context)
            for name, path in settings.models.items()
        }
        self.registry = Registry(settings.state)
        self._clients: dict[str, _Client] = {}
        self._pool = DecoderPool(self._build_decoder, settings.snapshot_bytes)
        self.engine = Engine(
            self._pool,
            lambda name: lambda tokens: self.models[name].tokenizer.decode(tokens),
            threads=settings.threads,
            deterministic=settings.deterministic,
            cache_bytes=settings.cache_bytes,
        )
        self.futures: FutureStore

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self.futures = FutureStore(loop)

    def stop(self) -> None:
        self.engine.stop()
        self.registry.close()

    def model(self, name: str, field_name: str) -> ServedModel:
        if name not in self.models:
            raise NotFoundError(f"{field_name}: no base model {name!r} here; have {', '.join(self.models)}")
        return self.models[name]

    # Futures ----------------------------------------------------------------------------------------------------
    def _submit(self, kind: str, key: tuple | None, run: Callable[[], bytes | dict[str, Any]]) -> Future:
        """Queue `run` on the compute thread; a request sent before under the same key keeps its first future."""
        if key is not None and (future := self.futures.existing(key)) is not None:
            return future
        future = self.futures.create(kind, key)

        def work() -> None:
            try:
                result = run()
            except RequestError as error:
                self.futures.resolve_error(future, error.message, "user")
            except Exception as error:
                logger.exception("%s failed", kind)
                self.futures.resolve_error(future, f"{type(error).__name__}: {error}", "server")
            else:
                if isinstance(result, bytes):
                    self.futures.resolve_proto(future, result)
                else:
                    self.futures.resolve_json(future, result)

        self.engine.call(work)
        return future

    def cancel(self, request_id: str) -> None:
        """Stop a sampling request that nobody waits for any more; other kinds always run to their end."""
        future = self.futures.get(request_id)
        if future is not None and not future.done and future.cancel is not None:
            future.cancel()
            self.futures.resolve_error(future, "cancelled by the client", "user")

    # Training ---------------------------------------------------------------------------------------------------
    def create_model(self, request: rq.CreateModel) -> Future:
        base = self.model(request.base_model, "base_model")
        self.registry.session(request.session_id)
        lora = request.lora_config
        if not (lora.train_attn or lora.train_mlp or lora.train_unembed):
            raise RequestError("lora_config: at least one of train_attn, train_mlp, train_unembed must be true")
        model_id = f"{request.session_id}:train:{request.model_seq_id}"
        seed = int.from_bytes(uuid.uuid4().bytes[:4]) if lora.seed is None else lora.seed & (2**63 - 1)
        spec = LoraSpec(lora.rank, seed, lora.train_attn, lora.train_mlp, lora.train_unembed)

        def run() -> dict[str, Any]:
            self._create(model_id, base, spec, request.session_id, request.user_metadata)
            return {"model_id": model_id, "type": "create_model"}

        return self._submit("create_model", ("model", model_id, 0), run)

    def _create(
        self, model_id: str, base: ServedModel, spec: LoraSpec, session_id: str, metadata: dict[str, Any] | None
    ) -> TrainingModel:
        client = _Client(model_id, base.name, spec)
        client.model = TrainingModel(model_id, base, spec, micro_tokens=self.settings.micro_tokens)
        self.registry.add_run(model_id, session_id, base.name, spec.to_json(), metadata)
        self._clients[model_id] = client
        return client.model

    def client(self, model_id: str) -> _Client:
        client = self._clients.get(model_id)
        if client is None:
            raise NotFoundError(
                f"model_id: no training client {model_id!r} is live here; after a restart of the service create one "
                "from a saved state"
            )
        client.last_used = time.monotonic()
        return client

    def _live(self, model_id: str) -> TrainingModel:
        """The training model, on the compute thread."""
        client = self.client(model_id)
        assert client.model is not None
        return client.model

    def forward_backward(self, request: TrainRequest) -> Future:
        client = self.client(request.model_id)
        rq.check_train_request(request, self.models[client.base_model])
        self.registry.touch_run(request.model_id)

        def run() -> bytes:
            outputs, metrics = self._live(request.model_id).forward_backward(request)
            return encode_train_output(outputs, metrics)

        return self._submit("forward_backward", ("model", request.model_id, request.seq_id), run)

    def optim_step(self, request: rq.OptimStep) -> Future:
        self.client(request.model_id)
        params = request.adam_params.model_dump()

        def run() -> dict[str, Any]:
            return {"metrics": self._live(request.model_id).optim_step(params)}

        return self._submit("optim_step", _key(request.model_id, request.seq_id), run)

    def save_weights(self, request: rq.SaveWeights) -> Future:
        client = self.client(request.model_id)
        name = rq.check_name(request.path or uuid.uuid4().hex[:12])

        def run() -> dict[str, Any]:
            path = self._save(client, "weights", name, request, optimizer=True)
            return {"path": path, "type": "save_weights"}

        return self._submit("save_weights", _key(request.model_id, request.seq_id), run)

    def save_weights_for_sampler(self, request: rq.SaveWeightsForSampler) -> Future:
        client = self.client(request.model_id)
        session_id = request.model_id.rsplit(":train:", 1)[0]
        if request.sampling_session_seq_id is None:
            name = rq.check_name(request.path or uuid.uuid4().hex[:12])
        else:
            name = f"ephemeral-{request.sampling_session_seq_id}"

        def run() -> dict[str, Any]:
            kind = "sampler_weights"
            if request.sampling_session_seq_id is None:
                path = self._save(client, kind, name, request, optimizer=False)
                return {"path": path, "type": "save_weights_for_sampler"}
            path = self._save(client, kind, name, request, optimizer=False, ephemeral_of=session_id)
            sampler_id = f"{session_id}:sample:{request.sampling_session_seq_id}"
            self.registry.add_sampler(sampler_id, session_id, client.base_model, path)
            return {"sampling_session_id": sampler_id, "type": "save_weights_for_sampler"}

        return self._submit("save_weights_for_sampler", _key(request.model_id, request.seq_id), run)

    def _save(
        self,
        client: _Client,
        kind: str,
        name: str,
        request: rq.SaveWeights,
        *,
        optimizer: bool,
        ephemeral_of: str | None = None,
    ) -> str:
        model = self._live(client.model_id)
        blob, size = self.registry.write_blob(lambda folder: model.save(folder, optimizer=optimizer))
        path = self.registry.add_checkpoint(
            client.model_id,
            kind,
            name,
            blob=blob,
            size_bytes=size,
            base_model=client.base_model,
            lora=client.spec.to_json(),
            has_optimizer=optimizer,
            ttl_seconds=request.ttl_seconds,
            overwrite=request.overwrite,
            user_metadata=request.user_metadata,
            ephemeral_of=ephemeral_of,
        )
        self._pool.forget(path)
        return path

    def load_weights(self, request: rq.LoadWeights) -> Future:
        """Load into a live client, or create one from the checkpoint when `session_id` is given."""
        parse_path(request.path, "path")
        checkpoint = self.registry.checkpoint(request.path)
        if request.optimizer and not checkpoint.has_optimizer:
            raise RequestError(f"optimizer: {request.path} was saved for sampling and holds no optimizer state")
        base_name = request.base_model or checkpoint.base_model
        base = self.model(base_name, "base_model")
        spec = LoraSpec.from_json(checkpoint.lora)
        folder = self.registry.blob(checkpoint)
        if request.session_id is not None:
            session_id = request.session_id
            self.registry.session(session_id)
            model_id = f"{session_id}:train:{request.model_seq_id}"

            def run() -> dict[str, Any]:
                model = self._create(model_id, base, spec, session_id, request.user_metadata)
                model.load(folder, optimizer=request.optimizer)
                return {"path": request.path, "model_id": model_id, "type": "load_weights"}

            return self._submit("load_weights", ("model", model_id, 0), run)
        if request.model_id is None:
            raise RequestError("model_id: set model_id, or session_id and model_seq_id")
        client = self.client(request.model_id)
        if (client.base_model, client.spec.rank) != (checkpoint.base_model, spec.rank):
            raise RequestError(
                f"path: {request.path} is of base {checkpoint.base_model!r} and rank {spec.rank}, this client of "
                f"{client.base_model!r} and rank {client.spec.rank}"
            )

        def run_live() -> dict[str, Any]:
            self._live(client.model_id).load(folder, optimizer=request.optimizer)
            return {"path": request.path, "model_id": client.model_id, "type": "load_weights"}

        return self._submit("load_weights", _key(request.model_id, request.seq_id), run_live)

    def get_info(self, model_id: str) -> dict[str, Any]:
        client = self.client(model_id)
        base = self.models[client.base_model]
        return {
            "type": "get_info",
            "model_id": model_id,
            "is_lora": True,
            "lora_rank": client.spec.rank,
            "model_name": client.base_model,
            "optimizer_config": {"type": "adamw"},
            "model_data": {
                "arch": base.model.config.model_type,
                "model_name": client.base_model,
                "tokenizer_id": str(base.path.resolve()),
            },
        }

    # Sampling ---------------------------------------------------------------------------------------------------
    def create_sampling_session(self, request: rq.CreateSamplingSession) -> str:
        self.registry.session(request.session_id)
        base_model, path = self._sampler_weights(request.base_model, request.model_path)
        sampler_id = f"{request.session_id}:sample:{request.sampling_session_seq_id}"
        self.registry.add_sampler(sampler_id, request.session_id, base_model, path)
        return sampler_id

    def _sampler_weights(self, base_model: str | None, model_path: str | None) -> SamplerKey:
        if model_path is not None:
            parse_path(model_path, "model_path")
            checkpoint = self.registry.checkpoint(model_path)
            if base_model is not None and base_model != checkpoint.base_model:
                raise RequestError(
                    f"base_model: {model_path} was trained on {checkpoint.base_model!r}, not {base_model!r}"
                )
            return self.model(checkpoint.base_model, "model_path").name, model_path
        if base_model is None:
            raise RequestError("base_model: set base_model or model_path")
        return self.model(base_model, "base_model").name, None

    def sample(self, request: rq.Sample) -> tuple[Future, list[str]]:
        """Queue a sampling or scoring request; returns its future and the ids of its sequences."""
        key: tuple | None = None
        if request.sampling_session_id is not None:
            if request.seq_id is not None:
                key = ("sample", request.sampling_session_id, request.seq_id)
            row = self.registry.sampler(request.sampling_session_id)
            weights: SamplerKey = (self.model(row["base_model"], "sampling_session_id").name, row["model_path"])
        else:
            weights = self._sampler_weights(request.base_model, request.model_path)
        if weights[1] is not None:
            self.registry.checkpoint(weights[1])
        if key is not None and (known := self.futures.existing(key)) is not None:
            return known, _sequence_ids(known, request.num_samples)
        model = self.models[weights[0]]
        prompt = rq.check_prompt(request.prompt, model)
        options = rq.sampling_options(request, len(prompt), model)
        prompt_options = rq.prompt_options(request, len(prompt), model)
        future = self.futures.create("sample", key)

        def fail(error: BaseException) -> None:
            self.futures.resolve_error(future, f"{type(error).__name__}: {error}", "server")

        work = SampleRequest(
            prompt=prompt,
            num_samples=request.num_samples,
            seed=request.sampling_params.seed,
            options=options,
            prompt_options=prompt_options,
            finish=lambda sequences, scores: self.futures.resolve_proto(
                future, encode_sample_response(sequences, scores)
            ),
            fail=fail,
        )
        future.cancel = work.cancelled.set
        self.engine.sample(weights, work)
        return future, _sequence_ids(future, request.num_samples)

    def _build_decoder(self, key: SamplerKey) -> DenseDecoder:
        """On the compute thread: the base alone, or with the adapter of a checkpoint."""
        name, path = key
        model = self.models[name]
        if path is None:
            return model.decoder(None, 1.0)
        checkpoint = self.registry.checkpoint(path)
        tensors = read_adapter(self.registry.blob(checkpoint))
        return model.decoder(tensors, LoraSpec.from_json(checkpoint.lora).scaling)


def _key(model_id: str, seq_id: int | None) -> tuple | None:
    return None if seq_id is None else ("model", model_id, seq_id)


def _sequence_ids(future: Future, count: int) -> list[str]:
    return [f"{future.request_id}:{index}" for index in range(count)]
