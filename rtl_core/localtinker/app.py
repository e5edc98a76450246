"""HTTP routes of the Tinker API under /api/v1, as SDK 0.38 calls them.

Plain Starlette: FastAPI, which it is part of, takes a tenth of the service's start and half of the time of a small request.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
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

Handler = Callable[[Request], Awaitable[Response | dict[str, Any]]]
Routes = dict[str, Handler]
"""Method and path below /api/v1 -> what answers: a response, or the values of one in JSON."""


def create_app(service: Service, api_key: str | None) -> Starlette:
    """The ASGI application. With `api_key` every request must carry it in X-API-Key."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        service.start(asyncio.get_running_loop())
        housekeeping = asyncio.create_task(_keep_house(service))
        yield
        housekeeping.cancel()
        service.stop()

    # The calls that every sample makes come first: routes are searched in this order.
    tables = (_sampling_routes, _training_routes, _session_routes, _listing_routes)
    routes = [route for table in tables for route in table(service).items()]
    return Starlette(
        routes=[_route(*route) for route in (*routes, *download_routes(service.registry).items())],
        exception_handlers={RequestError: _refuse, HTTPException: _refuse},
        middleware=[] if api_key is None else [Middleware(_RequireKey, api_key=api_key)],
        lifespan=lifespan,
    )


def _route(name: str, handler: Handler) -> Route:
    method, path = name.split()

    async def endpoint(request: Request) -> Response:
        answer = await handler(request)
        return answer if isinstance(answer, Response) else JSONResponse(answer)

    return Route(f"/api/v1{path}", endpoint, methods=[method])


async def _refuse(request: Request, error: Exception) -> Response:
    if isinstance(error, RequestError):
        return JSONResponse({"detail": error.message}, status_code=error.status)
    assert isinstance(error, HTTPException)
    return JSONResponse({"detail": error.detail}, status_code=error.status_code)


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


def _sampling_routes(service: Service) -> Routes:
    async def asample(request: Request) -> dict[str, Any]:
        future, sequence_ids = service.sample(rq.parse(rq.Sample, await request.body()))
        return {"request_id": future.request_id, "sample_sequence_ids": sequence_ids}

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

    async def create_sampling_session(request: Request) -> dict[str, Any]:
        body = rq.parse(rq.CreateSamplingSession, await request.body())
        return {"type": "create_sampling_session", "sampling_session_id": service.create_sampling_session(body)}

    async def sampler(request: Request) -> dict[str, Any]:
        sampler_id = request.path_params["sampler_id"]
        row = service.registry.sampler(sampler_id)
        return {"sampler_id": sampler_id, "base_model": row["base_model"], "model_path": row["model_path"]}

    async def cancel_future(request: Request) -> dict[str, Any]:
        service.cancel(rq.parse(rq.RequestId, await request.body()).request_id)
        return {}

    return {
        "POST /asample": asample,
        "POST /retrieve_future": retrieve_future,
        "POST /create_sampling_session": create_sampling_session,
        "GET /samplers/{sampler_id}": sampler,
        "POST /cancel_future": cancel_future,
    }


def _session_routes(service: Service) -> Routes:
    registry = service.registry

    async def client_config(request: Request) -> dict[str, Any]:
        return {"parallel_fwdbwd_chunks": False, "sample_enable_stuck_detection": False}

    async def dynamic_config(request: Request) -> dict[str, Any]:
        return {"sample_cancel_enabled": True}

    async def healthz(request: Request) -> dict[str, Any]:
        return {"status": "ok"}

    async def capabilities(request: Request) -> dict[str, Any]:
        return {
            "supported_models": [
                {"model_name": m.name, "max_context_length": m.max_context, "trainable": True, "sampleable": True}
                for m in service.models.values()
            ]
        }

    async def create_session(request: Request) -> dict[str, Any]:
        body = rq.parse(rq.CreateSession, await request.body())
        session_id = str(uuid.uuid4())
        registry.add_session(session_id, body.display_name, body.user_metadata)
        return {"type": "create_session", "session_id": session_id}

    async def heartbeat(request: Request) -> Response | dict[str, Any]:
        session_id = rq.parse(rq.Heartbeat, await request.body()).session_id
        if not registry.touch_session(session_id):
            return JSONResponse({"detail": f"session_id: {session_id!r} is finished or unknown"}, status_code=410)
        return {"type": "session_heartbeat"}

    async def finish(request: Request) -> dict[str, Any]:
        service.finish_session(request.path_params["session_id"])
        return {}

    async def status(request: Request) -> dict[str, Any]:
        return service.status()

    async def sessions(request: Request) -> dict[str, Any]:
        offset, limit = _window(request)
        return {"sessions": registry.sessions()[offset : offset + limit]}

    async def session(request: Request) -> dict[str, Any]:
        session_id = request.path_params["session_id"]
        row = registry.session(session_id)
        return {
            "training_run_ids": [run["id"] for run in registry.runs(session_id)],
            "sampler_ids": registry.samplers(session_id),
            "display_name": row["display_name"],
            "user_metadata": None if row["user_metadata"] is None else json.loads(row["user_metadata"]),
        }

    async def telemetry(request: Request) -> dict[str, Any]:
        return {"status": "accepted"}

    return {
        "POST /client/config": client_config,
        "POST /client/dynamic_config": dynamic_config,
        "GET /healthz": healthz,
        "GET /get_server_capabilities": capabilities,
        "POST /create_session": create_session,
        "POST /session_heartbeat": heartbeat,
        "POST /sessions/{session_id}/finish": finish,
        "GET /local/status": status,
        "GET /sessions": sessions,
        "GET /sessions/{session_id}": session,
        "POST /telemetry": telemetry,
    }


def _training_routes(service: Service) -> Routes:
    def promise(kind: type[rq.T], call: Callable[[rq.T], Future]) -> Handler:
        async def handler(request: Request) -> dict[str, Any]:
            return {"request_id": call(rq.parse(kind, await request.body())).request_id}

        return handler

    async def forward_backward(request: Request) -> dict[str, Any]:
        body = decode_train_request(await request.body(), request.headers.get("content-encoding"))
        return {"request_id": service.forward_backward(body).request_id}

    async def get_info(request: Request) -> dict[str, Any]:
        return service.get_info(rq.parse(rq.ModelId, await request.body()).model_id)

    return {
        "POST /forward_backward": forward_backward,
        "POST /get_info": get_info,
        "POST /create_model": promise(rq.CreateModel, service.create_model),
        "POST /unload_model": promise(rq.ModelId, lambda body: service.unload_model(body.model_id)),
        "POST /optim_step": promise(rq.OptimStep, service.optim_step),
        "POST /save_weights": promise(rq.SaveWeights, service.save_weights),
        "POST /save_weights_for_sampler": promise(rq.SaveWeightsForSampler, service.save_weights_for_sampler),
        "POST /save_weights_external": promise(rq.SaveWeightsExternal, service.save_weights_external),
        "POST /load_weights": promise(rq.LoadWeights, service.load_weights),
    }


def _listing_routes(service: Service) -> Routes:
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

    async def training_runs(request: Request) -> dict[str, Any]:
        (offset, limit), rows = _window(request), registry.runs()
        cursor = {"offset": offset, "limit": limit, "total_count": len(rows)}
        return {"training_runs": [run_json(r) for r in rows[offset : offset + limit]], "cursor": cursor}

    async def training_run(request: Request) -> dict[str, Any]:
        return run_json(registry.run(request.path_params["run_id"]))

    async def run_checkpoints(request: Request) -> dict[str, Any]:
        run_id = request.path_params["run_id"]
        registry.run(run_id)
        return {"checkpoints": [_checkpoint_json(c) for c in registry.checkpoints(run_id)]}

    async def checkpoints(request: Request) -> dict[str, Any]:
        (offset, limit), found = _window(request, 100), registry.checkpoints()
        cursor = {"offset": offset, "limit": limit, "total_count": len(found)}
        return {"checkpoints": [_checkpoint_json(c) for c in found[offset : offset + limit]], "cursor": cursor}

    async def delete_checkpoint(request: Request) -> Response:
        registry.delete_checkpoint(_path(request))
        return Response(status_code=204)

    async def set_ttl(request: Request) -> Response:
        ttl = rq.parse(rq.Ttl, await request.body()).ttl_seconds
        expires = None if ttl is None else datetime.now(UTC).timestamp() + ttl
        registry.update_checkpoint(_path(request), expires=expires)
        return Response(status_code=204)

    async def publish(request: Request) -> Response:
        registry.update_checkpoint(_path(request), public=int(request.method == "POST"))
        return Response(status_code=204)

    async def copy_weights(request: Request) -> dict[str, Any]:
        return {"tinker_path": service.copy_weights(rq.parse(rq.CopyWeights, await request.body()))}

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

    checkpoint = "/training_runs/{run_id}/checkpoints/{kind}/{name}"
    return {
        "GET /training_runs": training_runs,
        "GET /training_runs/{run_id}": training_run,
        "GET /training_runs/{run_id}/checkpoints": run_checkpoints,
        "GET /checkpoints": checkpoints,
        f"DELETE {checkpoint}": delete_checkpoint,
        f"PUT {checkpoint}/ttl": set_ttl,
        f"POST {checkpoint}/publish": publish,
        f"DELETE {checkpoint}/publish": publish,
        "POST /copy_weights": copy_weights,
        "POST /weights_info": weights_info,
    }


def _answer(future: Future) -> Response:
    future.retrieved_at = asyncio.get_running_loop().time()
    if future.proto is not None:
        return Response(future.proto, media_type="application/x-protobuf")
    return JSONResponse(future.json)


def _window(request: Request, limit: int = 20) -> tuple[int, int]:
    """The offset and the limit that a list is asked for with."""
    return rq.number(request.query_params, "offset", "0"), rq.number(request.query_params, "limit", str(limit))


def _path(request: Request) -> str:
    path = "tinker://{run_id}/{kind}/{name}".format(**request.path_params)
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
