"""The bridge as an HTTP server."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from collections.abc import Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from localtinker import http_server
from localtinker.bridge.calls import Call, Handler
from localtinker.bridge.engines import EngineError, recognise
from localtinker.bridge.saving import DOWNLOADS
from localtinker.bridge.state import Bridge, limits_of
from localtinker.bridge.table import ROWS, unchanged
from localtinker.bridge.upstream import FailedError, PendingError, UnreachableError, Upstream
from localtinker.errors import RequestError
from localtinker.settings import BridgeSettings, check_exposure, check_models

METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH")


def serve(
    settings: BridgeSettings,
    key: str,
    upstream_key: str | None,
    announce: Callable[[str], None],
) -> None:
    """Serve until the process is stopped. `announce` receives the base URL once the bridge answers. Raises
    EngineError if there is no engine at `settings.upstream` that needs a bridge."""
    check_models(settings.models)
    check_exposure(settings.host, key)
    engine = recognise(settings.upstream, key=upstream_key)
    if engine is None:
        raise EngineError(
            f"{settings.upstream} needs no bridge: it is not a SkyRL or TuFT",
            "give its address to the SDK itself (TINKER_BASE_URL, or tinker.base_url of a run)",
        )
    limits = {name: limits_of(folder) for name, folder in settings.models.items()}
    bridge = Bridge(engine, Upstream(settings.upstream, upstream_key), [], limits, key)
    listener = http_server.listen(settings.host, settings.port)

    async def run() -> None:
        served = await bridge.upstream.send("GET", "/get_server_capabilities")
        bridge.models = [model["model_name"] for model in served.json()["supported_models"]]
        await http_server.serve(create_app(bridge), listener, announce, grace_s=2)

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run())


def create_app(bridge: Bridge) -> Starlette:
    """Return the ASGI application. Every request but downloads, whose URLs are signed, must carry the key."""
    routes = [_route(bridge, *row.call.split(), row.handler) for row in ROWS]
    routes += [_route(bridge, method, "/{rest:path}", unchanged) for method in METHODS]
    refusals = (RequestError, HTTPException, FailedError, UnreachableError, PendingError)
    return Starlette(routes=routes, exception_handlers=dict.fromkeys(refusals, _refusal))


def _route(bridge: Bridge, method: str, path: str, handler: Handler) -> Route:
    key = None if path.startswith(DOWNLOADS) else bridge.key.encode()

    async def endpoint(request: Request) -> Response:
        presented = request.headers.get("X-API-Key", "").encode()
        if key is not None and not hmac.compare_digest(presented, key):
            raise RequestError("X-API-Key: missing or not this bridge's key", status=401)
        answer = await handler(Call(bridge, request, await request.body()))
        return answer if isinstance(answer, Response) else JSONResponse(answer)

    return Route(f"/api/v1{path}", endpoint, methods=[method])


async def _refusal(request: Request, error: Exception) -> Response:
    """503 makes the SDK send the request again, for five minutes."""
    status, words = 503, f"the engine does not answer ({error or 'timeout'})"
    if isinstance(error, RequestError):
        status, words = error.status, error.message
    elif isinstance(error, HTTPException):
        status, words = error.status_code, error.detail
    elif isinstance(error, FailedError):
        status, words = 400, error.message
    return JSONResponse({"detail": words}, status_code=status)
