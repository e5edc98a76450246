"""Request handling between HTTP and the compute thread: requests are validated and queued."""

from __future__ import annotations

import logging
import os
import uuid
from collections import Counter
from collections.abc import Callable
from functools import partial

from localtinker import requests as rq
from localtinker.devices import device_for, use_fast_products, use_threads
from localtinker.dispatch import SamplingProcesses
from localtinker.engine import Engine
from localtinker.errors import NotFoundError, RequestError
from localtinker.futures import Answer, Future, FutureStore, Json
from localtinker.generation import SamplingLoop
from localtinker.lora import LoraSpec
from localtinker.models import ServedModel, load_model, room_on
from localtinker.registry import Blob, Registry, SavedWeights, lock_folder
from localtinker.samplers import SampledWeights, SamplerPool, SamplingLimits
from localtinker.sampling import SampleJob
from localtinker.settings import Settings
from localtinker.trainer import Clients
from localtinker.wire import TrainRequest, encode_train_output

logger = logging.getLogger(__name__)


class Service:
    """A running service. Methods are called on the event loop; the engine's thread does the work."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._lock = lock_folder(settings.state)
        self.device = device_for(settings.device, settings.models.values())
        use_threads(1)  # until the template process is forked: threads do not survive a fork
        self.models: dict[str, ServedModel] = {
            name: load_model(
                name,
                path,
                dtype=settings.dtype,
                device=self.device,
                max_context=settings.max_context,
            )
            for name, path in settings.models.items()
        }
        models = self.models.values()
        if not all(model.small for model in models):
            use_fast_products()
        micro_tokens, cache_bytes = room_on(self.device, models)
        limits = SamplingLimits(cache_bytes)
        processes = settings.sampling_processes
        if processes is None:
            processes = settings.threads
        self._processes: SamplingProcesses | None = None
        if processes and any(model.small for model in models):
            self._processes = SamplingProcesses(
                self.models, processes, limits, deterministic=settings.deterministic
            )
        self.registry = Registry(settings.state)
        self.clients = Clients(self.registry, micro_tokens=micro_tokens)
        pool = SamplerPool(self.models, limits, deterministic=settings.deterministic)
        self.engine = Engine(
            SamplingLoop(pool, threads=settings.threads), threads=settings.threads
        )
        self.futures = FutureStore()
        self._done: Counter[str] = Counter()
        """Number of completed requests by kind; for sampling, of samples, and for scoring, of sequences."""

    def stop(self) -> None:
        if self._processes is not None:
            self._processes.stop()
        self.engine.stop()
        self.registry.close()
        os.close(self._lock)

    def model(self, name: str) -> ServedModel:
        if name not in self.models:
            raise NotFoundError(
                f"base_model: no base model {name!r} here; available: {', '.join(self.models)}"
            )
        return self.models[name]

    def status(self) -> Json:
        """Return resources and load, for operators and tests."""
        load = Counter(self.engine.load())
        if self._processes is not None:
            load.update(self._processes.load())
        return {
            **load,
            "training_clients": len(self.clients),
            "adapters_in_memory": self.clients.resident,
            "futures": len(self.futures),
            "device": self.device,
            "done": dict(self._done),
        }

    def release_unused(self) -> None:
        """Release collected futures, idle clients and those of ended sessions. Called every few seconds on
        the event loop."""
        self.futures.purge()
        for model_id in self.clients.idle(self.settings.idle_s):
            self.engine.call(partial(self.clients.park, model_id))
        self._drop_orphaned_clients()

    def finish_session(self, session_id: str) -> None:
        """End a session: its training clients are released, its checkpoints stay."""
        self.registry.session(session_id)
        self.registry.finish_session(session_id)
        self._drop_orphaned_clients()

    def _drop_orphaned_clients(self) -> None:
        for model_id in self.clients.orphaned():
            self.engine.call(partial(self.clients.drop, model_id))

    # Futures ----------------------------------------------------------------------------------------------------
    def _submit(self, kind: str, key: tuple | None, run: Callable[[], Answer]) -> Future:
        """Queue `run` on the compute thread. A retry, with the key of an earlier request, gets the earlier future."""
        earlier = self.futures.existing(key)
        if earlier is not None:
            return earlier
        future = self.futures.create(key)

        def work() -> None:
            try:
                result = run()
            except Exception as error:
                if not isinstance(error, RequestError):
                    logger.exception("%s failed", kind)
                self.futures.resolve(future, error)
            else:
                self._done[kind] += 1
                self.futures.resolve(future, result)

        self.engine.call(work)
        return future

    def cancel(self, request: rq.RequestId) -> Json:
        """Cancel a sampling request. Other requests always run to completion."""
        future = self.futures.get(request.request_id)
        if future is not None and future.cancel is not None:
            future.cancel()
            self.futures.resolve(future, RequestError("cancelled by the client"))
            future.collected()
        return {}

    # Training ---------------------------------------------------------------------------------------------------
    def create_model(self, request: rq.CreateModel) -> Future:
        base = self.model(request.base_model)
        self._open_session(request.session_id)
        spec = request.lora_config
        if not (spec.train_attn or spec.train_mlp or spec.train_unembed):
            raise RequestError(
                "lora_config: at least one of train_attn, train_mlp, train_unembed must be true"
            )
        model_id = f"{request.session_id}:train:{request.model_seq_id}"

        def run() -> Json:
            self.clients.create(model_id, request.session_id, base, spec, request.user_metadata)
            return {"model_id": model_id, "type": "create_model"}

        return self._submit("create_model", _key(model_id, 0), run)

    def _open_session(self, session_id: str) -> None:
        if self.registry.session(session_id)["finished"]:
            raise RequestError(f"session_id: session {session_id!r} is finished", status=410)

    def info(self, request: rq.ModelId) -> Json:
        client = self.clients.get(request.model_id)
        return {
            "type": "get_info",
            "model_id": client.model_id,
            "is_lora": True,
            "lora_rank": client.spec.rank,
            "model_name": client.base.name,
            "optimizer_config": {"type": "adamw"},
            "model_data": {
                "arch": client.base.model.config.model_type,
                "model_name": client.base.name,
                "tokenizer_id": str(client.base.path.resolve()),
            },
        }

    def unload_model(self, request: rq.ModelId) -> Future:
        model_id = self.clients.get(request.model_id).model_id

        def run() -> Json:
            self.clients.drop(model_id)
            return {"model_id": model_id, "type": "unload_model"}

        return self._submit("unload_model", None, run)

    def forward_backward(self, request: TrainRequest) -> Future:
        client = self.clients.get(request.model_id)
        rq.check_train_request(request, client.base)
        self.registry.touch_run(request.model_id)

        def run() -> bytes:
            model = self.clients.live(request.model_id)
            return encode_train_output(*model.forward_backward(request))

        return self._submit("forward_backward", _key(request.model_id, request.seq_id), run)

    def optim_step(self, request: rq.OptimStep) -> Future:
        self.clients.get(request.model_id)

        def run() -> Json:
            model = self.clients.live(request.model_id)
            return {"metrics": model.optim_step(request.adam_params)}

        return self._submit("optim_step", _key(request.model_id, request.seq_id), run)

    def save(self, request: rq.SaveWeights) -> Future:
        """Save a client's adapter under a name or, with `sampling_session_seq_id`, as the unlisted snapshot of the
        sampling client with this number."""
        if request.age_encryption_recipients:
            raise RequestError("age_encryption_recipients: encryption is not supported")
        client = self.clients.get(request.model_id)
        call, kind = request.CALL, request.KIND
        sampler = request.sampling_session_seq_id
        snapshot = sampler is not None
        optimizer = kind == "weights"
        name = request.path or uuid.uuid4().hex[:12]
        if snapshot:
            name = f"ephemeral-{sampler}"

        def run() -> Json:
            model = self.clients.live(client.model_id)
            if not request.overwrite:
                self.registry.check_free(client.model_id, kind, name)
            blob, size = self.registry.write_blob(
                lambda folder: model.save(folder, optimizer=optimizer), durable=not snapshot
            )
            files = Blob(
                blob=blob,
                base_model=client.base.name,
                lora=client.spec.model_dump_json(),
                has_optimizer=optimizer,
                size_bytes=size,
            )
            path = self.registry.add_checkpoint(
                client.model_id,
                kind,
                name,
                files,
                ttl_seconds=request.ttl_seconds,
                user_metadata=request.user_metadata,
                ephemeral_of=client.session_id if snapshot else None,
            )
            if not snapshot:
                return {"path": path, "type": call}
            sampler_id = f"{client.session_id}:sample:{sampler}"
            self.registry.add_sampler(sampler_id, client.session_id, client.base.name, path)
            return {"sampling_session_id": sampler_id, "type": call}

        return self._submit(call, _key(request.model_id, request.seq_id), run)

    def load_weights(self, request: rq.LoadWeights) -> Future:
        """Load a checkpoint into a live client, or into a new one if `session_id` is given."""
        checkpoint = self.registry.checkpoint(request.path)
        if request.optimizer and not checkpoint.has_optimizer:
            raise RequestError(
                f"optimizer: {request.path} was saved for sampling, without optimizer state"
            )
        base = self._base_of(checkpoint, request.base_model)
        spec = LoraSpec.model_validate_json(checkpoint.lora)
        session_id = request.session_id
        model_id = request.model_id
        if session_id is not None:
            self._open_session(session_id)
            model_id = f"{session_id}:train:{request.model_seq_id}"
            key = _key(model_id, 0)
        elif model_id is None:
            raise RequestError("model_id: set model_id, or session_id and model_seq_id")
        else:
            client = self.clients.get(model_id)
            mine = client.spec.describe()
            theirs = spec.describe()
            if (client.base.name, mine) != (checkpoint.base_model, theirs):
                raise RequestError(
                    f"path: {request.path} belongs to {checkpoint.base_model!r} with {theirs}, this client to "
                    f"{client.base.name!r} with {mine}"
                )
            key = _key(model_id, request.seq_id)

        def run() -> Json:
            # Looked up again: earlier requests may have overwritten it.
            blob = self.registry.hold(request.path).blob
            try:
                if session_id is not None:
                    self.clients.create(model_id, session_id, base, spec, request.user_metadata)
                model = self.clients.live(model_id)
                model.load(self.registry.blob_path(blob), optimizer=request.optimizer)
            except BaseException:
                if session_id is not None:
                    self.clients.drop(model_id)
                raise
            finally:
                self.registry.release_blob(blob)
            return {"path": request.path, "model_id": model_id, "type": "load_weights"}

        return self._submit("load_weights", key, run)

    def copy_weights(self, request: rq.CopyWeights) -> Json:
        """Create a second name for a checkpoint, in a new run that cannot be trained. The files are shared."""
        source = self.registry.hold(request.source_path, "source_path")
        session_id = request.session_id or f"copies-{uuid.uuid4()}"
        run_id = f"{session_id}:train:{request.model_seq_id or 0}"
        self.registry.add_run(run_id, session_id, source.base_model, source.lora, None)
        path = self.registry.add_checkpoint(
            run_id,
            source.kind,
            source.name,
            source,
            ttl_seconds=request.ttl_seconds,
            user_metadata=source.user_metadata,
        )
        return {"tinker_path": path}

    # Sampling ---------------------------------------------------------------------------------------------------
    def create_sampling_session(self, request: rq.CreateSamplingSession) -> Json:
        self._open_session(request.session_id)
        base = self._sampled_model(request.base_model, request.model_path)
        sampler_id = f"{request.session_id}:sample:{request.sampling_session_seq_id}"
        self.registry.add_sampler(sampler_id, request.session_id, base.name, request.model_path)
        return {"type": "create_sampling_session", "sampling_session_id": sampler_id}

    def _sampled_model(self, base_model: str | None, model_path: str | None) -> ServedModel:
        """Return the base model to sample, which may have the adapter at `model_path`."""
        if model_path is not None:
            checkpoint = self.registry.checkpoint(model_path, "model_path")
            return self._base_of(checkpoint, base_model)
        if base_model is None:
            raise RequestError("base_model: set base_model or model_path")
        return self.model(base_model)

    def _base_of(self, saved: SavedWeights, name: str | None) -> ServedModel:
        """Return the base model of saved weights. Raises RequestError if a request gives another `name`."""
        if name not in (None, saved.base_model):
            raise RequestError(
                f"base_model: {saved.path} was trained on {saved.base_model!r}, not {name!r}"
            )
        return self.model(saved.base_model)

    def sample(self, request: rq.Sample) -> Future:
        """Queue a sampling or scoring request. Its weights are protected from changes until it is done."""
        key = None
        base_model = request.base_model
        path = request.model_path
        session = request.sampling_session_id
        if session is not None:
            sampler = self.registry.sampler(session)
            base_model = sampler["base_model"]
            path = sampler["model_path"]
            key = _key(session, request.seq_id)
        model = self._sampled_model(base_model, path)
        earlier = self.futures.existing(key)
        if earlier is not None:
            return earlier
        prompt = rq.check_prompt(request.prompt, model)
        job = SampleJob(
            prompt=prompt,
            num_samples=request.num_samples,
            seed=request.sampling_params.seed,
            options=rq.sampling_options(request, len(prompt), model),
            prompt_options=rq.prompt_options(request, len(prompt), model),
        )
        if path is None:
            weights = SampledWeights(model.name)
            future = self.futures.create(key)
        else:
            checkpoint = self.registry.hold(path)
            folder = self.registry.blob_path(checkpoint.blob)
            spec = LoraSpec.model_validate_json(checkpoint.lora)
            weights = SampledWeights(model.name, folder, spec)
            future = self.futures.create(key)
            future.answer.add_done_callback(
                lambda _: self.registry.release_blob(checkpoint.blob)
            )

        def take(answer: bytes | Exception) -> None:
            if isinstance(answer, bytes):
                self._done["score" if request.prompt_logprobs else "sample"] += job.num_samples
            self.futures.resolve(future, answer)

        where = self._processes if self._processes is not None and model.small else self.engine
        future.cancel = where.sample(weights, job, take)
        return future


def _key(owner: str, seq_id: int | None) -> tuple | None:
    """Return the key of a request to a training or sampling client; None: it is never sent again."""
    return None if seq_id is None else (owner, seq_id)
