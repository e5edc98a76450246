"""HTTP routes of the Tinker API under /api/v1, as SDK 0.38 calls them."""

from __future__ import annotations

import asyncio
import hmac
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from rtl_core.localtinker import requests as rq
from rtl_core.localtinker.downloads import PREFIX, download_routes
from rtl_core.localtinker.errors import RequestError
from rtl_core.localtinker.futures import Future
from rtl_core.localtinker.lora import LoraSpec
from rtl_core.localtinker.memory import give_back_free_memory
from rtl_core.localtinker.registry import KINDS, Checkpoint, parse_path
from rtl_core.localtinker.service import Service
from rtl_core.localtinker.wire import decode_train_request

_LONG_POLL = 30.0  # seconds; the SDK's own limit for this call is 45


def create_app(service: Service, api_key: str | None) -> FastAPI:
    """The ASGI application. With `api_key` every request must carry it in X-API-Key."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.start(asyncio.get_running_loop())
        housekeeping = asyncio.create_task(_keep_house(service))
        yield
        housekeeping.cancel()
        service.stop()

    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    # Every sample is one call to each of these: as plain routes, first in the list, they cost half of FastAPI's.
    for path, endpoint in _hot_routes(service).items():
        app.router.routes.append(Route(f"/api/v1{path}", endpoint, methods=["POST"]))
    app.include_router(_session_routes(service), prefix="/api/v1")
    app.include_router(_training_routes(service), prefix="/api/v1")
    app.include_router(_sampling_routes(service), prefix="/api/v1")
    app.include_router(_listing_routes(service), prefix="/api/v1")
    app.include_router(download_routes(service.registry), prefix="/api/v1")

    @app.exception_handler(RequestError)
    async def refuse(request: Request, error: RequestError) -> JSONResponse:
        return JSONResponse({"detail": error.message}, status_code=error.status)

    @app.exception_handler(RequestValidationError)
    async def refuse_query(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        return JSONResponse({"detail": f"{'.'.join(map(str, first['loc']))}: {first['msg']}"}, status_code=422)

    if api_key is not None:
        app.add_middleware(_RequireKey, api_key=api_key)
    return app


class _RequireKey:
    """Answers 401 to whoever does not send the service's key, but for downloads, whose URLs are signed."""

    def __init__(self, app: ASGIApp, api_key: str) -> None:
        self._app = app
        self._key = api_key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not scope["path"].startswith(f"/api/v1{PREFIX}/"):
            sent = next((value for name, value in scope["headers"] if name == b"x-api-key"), b"")
            if not hmac.compare_digest(sent, self._key):
                response = JSONResponse({"detail": "X-API-Key: missing or not this service's key"}, status_code=401)
                await response(scope, receive, send)
                return
        await self._app(scope, receive, send)


async def _keep_house(service: Service) -> None:
    while True:
        await asyncio.sleep(service.settings.housekeeping_s)
        service.keep_house()
        await asyncio.to_thread(service.registry.collect_garbage)
        await asyncio.to_thread(give_back_free_memory)


def _hot_routes(service: Service) -> dict[str, Callable[[Request], Awaitable[Response]]]:
    async def asample(request: Request) -> Response:
        future, sequence_ids = service.sample(rq.parse(rq.Sample, await request.body()))
        return JSONResponse({"request_id": future.request_id, "sample_sequence_ids": sequence_ids})

    async def retrieve_future(request: Request) -> Response:
        request_id = rq.parse(rq.RequestId, await request.body()).request_id
        future = service.futures.get(request_id)
        if future is None:
            # 410 makes the SDK send a lost sampling request again, as after a restart of the service.
            return JSONResponse({"detail": f"request_id: no future {request_id!r} here"}, status_code=410)
        if not future.done:
            try:
                await asyncio.wait_for(future.event.wait(), _LONG_POLL)
            except TimeoutError:
                body = {"type": "try_again", "request_id": request_id, "queue_state": "active"}
                return JSONResponse(body, status_code=408)
        return _answer(future)

    return {"/asample": asample, "/retrieve_future": retrieve_future}


def _session_routes(service: Service) -> APIRouter:
    router = APIRouter()
    registry = service.registry

    @router.post("/client/config")
    async def client_config() -> dict[str, Any]:
        return {"parallel_fwdbwd_chunks": False, "sample_enable_stuck_detection": False}

    @router.post("/client/dynamic_config")
    async def dynamic_config() -> dict[str, Any]:
        return {"sample_cancel_enabled": True}

    @router.get("/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @router.get("/get_server_capabilities")
    async def capabilities() -> dict[str, Any]:
        return {
            "supported_models": [
                {"model_name": m.name, "max_context_length": m.max_context, "trainable": True, "sampleable": True}
                for m in service.models.values()
            ]
        }

    @router.post("/create_session")
    async def create_session(request: Request) -> dict[str, Any]:
        body = rq.parse(rq.CreateSession, await request.body())
        session_id = str(uuid.uuid4())
        registry.add_session(session_id, body.display_name, body.user_metadata)
        return {"type": "create_session", "session_id": session_id}

    @router.post("/session_heartbeat")
    async def heartbeat(request: Request) -> Response:
        session_id = rq.parse(rq.Heartbeat, await request.body()).session_id
        if not registry.touch_session(session_id):
            return JSONResponse({"detail": f"session_id: {session_id!r} is finished or unknown"}, status_code=410)
        return JSONResponse({"type": "session_heartbeat"})

    @router.post("/sessions/{session_id}/finish")
    async def finish(session_id: str) -> dict[str, Any]:
        service.finish_session(session_id)
        return {}

    @router.get("/local/status")
    async def status() -> dict[str, Any]:
        return service.status()

    @router.get("/sessions")
    async def sessions(limit: int = 20, offset: int = 0) -> dict[str, Any]:
        return {"sessions": registry.sessions()[offset : offset + limit]}

    @router.get("/sessions/{session_id}")
    async def session(session_id: str) -> dict[str, Any]:
        row = registry.session(session_id)
        return {
            "training_run_ids": [run["id"] for run in registry.runs(session_id)],
            "sampler_ids": registry.samplers(session_id),
            "display_name": row["display_name"],
            "user_metadata": None if row["user_metadata"] is None else json.loads(row["user_metadata"]),
        }

    @router.post("/telemetry")
    async def telemetry() -> dict[str, str]:
        return {"status": "accepted"}

    return router


def _training_routes(service: Service) -> APIRouter:
    router = APIRouter()

    @router.post("/create_model")
    async def create_model(request: Request) -> dict[str, Any]:
        return _promise(service.create_model(rq.parse(rq.CreateModel, await request.body())))

    @router.post("/get_info")
    async def get_info(request: Request) -> dict[str, Any]:
        return service.get_info(rq.parse(rq.ModelId, await request.body()).model_id)

    @router.post("/unload_model")
    async def unload_model(request: Request) -> dict[str, Any]:
        return _promise(service.unload_model(rq.parse(rq.ModelId, await request.body()).model_id))

    @router.post("/forward_backward")
    async def forward_backward(request: Request) -> dict[str, Any]:
        body = await request.body()
        return _promise(service.forward_backward(decode_train_request(body, request.headers.get("content-encoding"))))

    @router.post("/optim_step")
    async def optim_step(request: Request) -> dict[str, Any]:
        return _promise(service.optim_step(rq.parse(rq.OptimStep, await request.body())))

    @router.post("/save_weights")
    async def save_weights(request: Request) -> dict[str, Any]:
        return _promise(service.save_weights(rq.parse(rq.SaveWeights, await request.body())))

    @router.post("/save_weights_for_sampler")
    async def save_weights_for_sampler(request: Request) -> dict[str, Any]:
        return _promise(service.save_weights_for_sampler(rq.parse(rq.SaveWeightsForSampler, await request.body())))

    @router.post("/save_weights_external")
    async def save_weights_external(request: Request) -> dict[str, Any]:
        return _promise(service.save_weights_external(rq.parse(rq.SaveWeightsExternal, await request.body())))

    @router.post("/load_weights")
    async def load_weights(request: Request) -> dict[str, Any]:
        return _promise(service.load_weights(rq.parse(rq.LoadWeights, await request.body())))

    return router


def _sampling_routes(service: Service) -> APIRouter:
    router = APIRouter()

    @router.post("/create_sampling_session")
    async def create_sampling_session(request: Request) -> dict[str, Any]:
        body = rq.parse(rq.CreateSamplingSession, await request.body())
        return {"type": "create_sampling_session", "sampling_session_id": service.create_sampling_session(body)}

    @router.get("/samplers/{sampler_id}")
    async def sampler(sampler_id: str) -> dict[str, Any]:
        row = service.registry.sampler(sampler_id)
        return {"sampler_id": sampler_id, "base_model": row["base_model"], "model_path": row["model_path"]}

    @router.post("/cancel_future")
    async def cancel_future(request: Request) -> dict[str, Any]:
        service.cancel(rq.parse(rq.RequestId, await request.body()).request_id)
        return {}

    return router


def _listing_routes(service: Service) -> APIRouter:
    router = APIRouter()
    registry = service.registry

    def run_json(row: Any) -> dict[str, Any]:
        saved = registry.checkpoints(row["id"])
        return {
            "training_run_id": row["id"],
            "base_model": row["base_model"],
            "model_owner": "local",
            "is_lora": True,
            "lora_rank": LoraSpec.from_json(row["lora"]).rank,
            "last_request_time": _iso(row["last_request"]),
            "user_metadata": None if row["user_metadata"] is None else json.loads(row["user_metadata"]),
            "last_checkpoint": next((_checkpoint_json(c) for c in saved if c.kind == "weights"), None),
            "last_sampler_checkpoint": next((_checkpoint_json(c) for c in saved if c.kind == "sampler_weights"), None),
        }

    @router.get("/training_runs")
    async def training_runs(limit: int = 20, offset: int = 0) -> dict[str, Any]:
        rows = registry.runs()
        cursor = {"offset": offset, "limit": limit, "total_count": len(rows)}
        return {"training_runs": [run_json(r) for r in rows[offset : offset + limit]], "cursor": cursor}

    @router.get("/training_runs/{run_id}")
    async def training_run(run_id: str) -> dict[str, Any]:
        return run_json(registry.run(run_id))

    @router.get("/training_runs/{run_id}/checkpoints")
    async def run_checkpoints(run_id: str) -> dict[str, Any]:
        registry.run(run_id)
        return {"checkpoints": [_checkpoint_json(c) for c in registry.checkpoints(run_id)]}

    @router.get("/checkpoints")
    async def checkpoints(limit: int = 100, offset: int = 0) -> dict[str, Any]:
        found = registry.checkpoints()
        cursor = {"offset": offset, "limit": limit, "total_count": len(found)}
        return {"checkpoints": [_checkpoint_json(c) for c in found[offset : offset + limit]], "cursor": cursor}

    @router.delete("/training_runs/{run_id}/checkpoints/{kind}/{name}")
    async def delete_checkpoint(run_id: str, kind: str, name: str) -> Response:
        registry.delete_checkpoint(_path(run_id, kind, name))
        return Response(status_code=204)

    @router.put("/training_runs/{run_id}/checkpoints/{kind}/{name}/ttl")
    async def set_ttl(run_id: str, kind: str, name: str, request: Request) -> Response:
        ttl = rq.parse(rq.Ttl, await request.body()).ttl_seconds
        expires = None if ttl is None else datetime.now(UTC).timestamp() + ttl
        registry.update_checkpoint(_path(run_id, kind, name), expires=expires)
        return Response(status_code=204)

    @router.post("/training_runs/{run_id}/checkpoints/{kind}/{name}/publish")
    async def publish(run_id: str, kind: str, name: str) -> Response:
        registry.update_checkpoint(_path(run_id, kind, name), public=1)
        return Response(status_code=204)

    @router.delete("/training_runs/{run_id}/checkpoints/{kind}/{name}/publish")
    async def unpublish(run_id: str, kind: str, name: str) -> Response:
        registry.update_checkpoint(_path(run_id, kind, name), public=0)
        return Response(status_code=204)

    @router.post("/copy_weights")
    async def copy_weights(request: Request) -> dict[str, Any]:
        return {"tinker_path": service.copy_weights(rq.parse(rq.CopyWeights, await request.body()))}

    @router.post("/weights_info")
    async def weights_info(request: Request) -> dict[str, Any]:
        path = rq.parse(rq.TinkerPath, await request.body()).tinker_path
        parse_path(path, "tinker_path")
        checkpoint = registry.checkpoint(path)
        spec = LoraSpec.from_json(checkpoint.lora)
        return {
            "base_model": checkpoint.base_model,
            "is_lora": True,
            "lora_rank": spec.rank,
            "train_unembed": spec.train_unembed,
            "train_mlp": spec.train_mlp,
            "train_attn": spec.train_attn,
        }

    return router


def _promise(future: Future) -> dict[str, Any]:
    return {"request_id": future.request_id}


def _answer(future: Future) -> Response:
    future.retrieved_at = asyncio.get_running_loop().time()
    if future.proto is not None:
        return Response(future.proto, media_type="application/x-protobuf")
    return JSONResponse(future.json)


def _path(run_id: str, kind: str, name: str) -> str:
    path = f"tinker://{run_id}/{kind}/{name}"
    parse_path(path, "checkpoint_id")
    return path


def _checkpoint_json(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "checkpoint_id": f"{checkpoint.kind}/{checkpoint.name}",
        "checkpoint_type": KINDS[checkpoint.kind],
        "time": _iso(checkpoint.created),
        "tinker_path": checkpoint.path,
        "size_bytes": checkpoint.size_bytes,
        "public": checkpoint.public,
        "user_metadata": checkpoint.user_metadata,
        "expires_at": None if checkpoint.expires is None else _iso(checkpoint.expires),
    }


def _iso(timestamp: float) -> str:
    return datetime.fromtimestamp(timestamp, UTC).isoformat()
