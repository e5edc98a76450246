"""HTTP routes of the Tinker API under /api/v1, as SDK 0.38 calls them."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse

from localtinker import requests as rq
from localtinker.devices import give_back_free_memory
from localtinker.errors import RequestError
from localtinker.futures import Future, Json
from localtinker.listing import checkpoint_routes, download_routes, run_routes
from localtinker.losses import UNAVAILABLE
from localtinker.routing import CLIENT_CONFIG, Handler, Reply, Routes, application
from localtinker.service import Service
from localtinker.wire import decode_train_request

logger = logging.getLogger(__name__)

_LONG_POLL = 30.0  # seconds; the SDK's timeout for this call is 45


def create_app(service: Service, api_key: str | None) -> Starlette:
    """Return the ASGI application. With `api_key`, every request must carry it in X-API-Key."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        housekeeping = asyncio.create_task(_housekeeping(service))
        yield
        housekeeping.cancel()
        service.stop()

    # Routes are searched in this order, so the most frequent calls come first.
    routes = {
        **_sampling_routes(service),
        **_training_routes(service),
        **_session_routes(service),
    }
    for more in (run_routes, checkpoint_routes, download_routes):
        routes |= more(service.registry)
    return application(routes, "service", api_key, {}, lifespan)


async def _housekeeping(service: Service) -> None:
    while True:
        await asyncio.sleep(service.settings.housekeeping_s)
        try:
            service.release_unused()
            await asyncio.to_thread(service.registry.collect_garbage)
        except (
            Exception
        ):  # such as a full disk or a missing folder: the next attempt may succeed
            logger.exception("housekeeping failed")
        await asyncio.to_thread(give_back_free_memory)


def _posted(kind: type[rq.T], call: Callable[[rq.T], Any]) -> Handler:
    """Return a handler that passes the parsed JSON body to `call` and answers with its result or the id of
    its future."""

    async def handler(request: Request) -> Any:
        answer = call(rq.parse(kind, await request.body()))
        return {"request_id": answer.request_id} if isinstance(answer, Future) else answer

    return handler


def _sampling_routes(service: Service) -> Routes:
    def asample(body: rq.Sample) -> Json:
        future = service.sample(body)
        sequences = [f"{future.request_id}:{index}" for index in range(body.num_samples)]
        return {"request_id": future.request_id, "sample_sequence_ids": sequences}

    async def retrieve_future(request: Request) -> Reply:
        request_id = rq.parse(rq.RequestId, await request.body()).request_id
        future = service.futures.get(request_id)
        if future is None:
            # 410 makes the SDK resend a sampling request that was lost, for instance by a restart.
            raise RequestError(f"request_id: no future {request_id!r} here", status=410)
        await asyncio.wait({future.answer}, timeout=_LONG_POLL)
        if not future.answer.done():
            body = {"type": "try_again", "request_id": request_id, "queue_state": "active"}
            return JSONResponse(body, status_code=408)
        future.collected()
        return future.answer.result()

    async def sampler(request: Request, sampler_id: str) -> Json:
        row = service.registry.sampler(sampler_id)
        return {
            "sampler_id": sampler_id,
            "base_model": row["base_model"],
            "model_path": row["model_path"],
        }

    return {
        "POST /asample": _posted(rq.Sample, asample),
        "POST /retrieve_future": retrieve_future,
        "POST /create_sampling_session": _posted(
            rq.CreateSamplingSession, service.create_sampling_session
        ),
        "GET /samplers/{sampler_id}": sampler,
        "POST /cancel_future": _posted(rq.RequestId, service.cancel),
    }


def _session_routes(service: Service) -> Routes:
    registry = service.registry

    def create_session(body: rq.CreateSession) -> Json:
        session_id = str(uuid.uuid4())
        registry.add_session(session_id, body.display_name, body.user_metadata)
        return {"type": "create_session", "session_id": session_id}

    def heartbeat(body: rq.Heartbeat) -> Json:
        if not registry.touch_session(body.session_id):
            raise RequestError(
                f"session_id: {body.session_id!r} is finished or unknown", status=410
            )
        return {"type": "session_heartbeat"}

    async def finish(request: Request, session_id: str) -> Json:
        service.finish_session(session_id)
        return {}

    async def status(request: Request) -> Json:
        return service.status()

    def always(**answer: Any) -> Handler:
        async def handler(request: Request) -> Json:
            return answer

        return handler

    supported = [
        {
            "model_name": m.name,
            "max_context_length": m.max_context,
            "trainable": True,
            "sampleable": True,
        }
        for m in service.models.values()
    ]
    return {
        "POST /client/config": always(**CLIENT_CONFIG),
        "POST /client/dynamic_config": always(sample_cancel_enabled=True),
        "GET /healthz": always(status="ok"),
        "GET /get_server_capabilities": always(supported_models=supported),
        "POST /create_session": _posted(rq.CreateSession, create_session),
        "POST /session_heartbeat": _posted(rq.Heartbeat, heartbeat),
        "POST /sessions/{session_id}/finish": finish,
        "GET /local/status": status,
        "POST /telemetry": always(status="accepted"),
    }


def _training_routes(service: Service) -> Routes:
    async def forward_backward(request: Request) -> Json:
        encoding = request.headers.get("content-encoding")
        body = decode_train_request(await request.body(), encoding)
        return {"request_id": service.forward_backward(body).request_id}

    async def create_custom_loss(request: Request) -> Json:
        raise RequestError(f"create_custom_loss: not supported: {UNAVAILABLE['custom']}")

    return {
        "POST /forward_backward": forward_backward,
        "POST /create_custom_loss": create_custom_loss,
        "POST /get_info": _posted(rq.ModelId, service.info),
        "POST /copy_weights": _posted(rq.CopyWeights, service.copy_weights),
        "POST /create_model": _posted(rq.CreateModel, service.create_model),
        "POST /unload_model": _posted(rq.ModelId, service.unload_model),
        "POST /optim_step": _posted(rq.OptimStep, service.optim_step),
        "POST /save_weights": _posted(rq.SaveWeights, service.save),
        "POST /save_weights_for_sampler": _posted(rq.SaveWeightsForSampler, service.save),
        "POST /save_weights_external": _posted(rq.SaveWeightsExternal, service.save),
        "POST /load_weights": _posted(rq.LoadWeights, service.load_weights),
    }
