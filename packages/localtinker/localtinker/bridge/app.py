"""The bridge as an HTTP server."""

from __future__ import annotations

import json
import logging
import os
from functools import partial

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from localtinker import http_server
from localtinker.bridge.engines import EngineError, recognise
from localtinker.bridge.state import Bridge, Handler, Limits
from localtinker.bridge.table import handlers, unchanged
from localtinker.bridge.upstream import UnreachableError, Upstream
from localtinker.errors import RequestError
from localtinker.futures import Json
from localtinker.routing import Reply, Routes, application, refusal
from localtinker.settings import (
    UPSTREAM_KEY,
    Announce,
    BridgeSettings,
    check_exposure,
    check_models,
)

TELLING_S = 300.0
"""How long an engine that starts or trains may take to tell its backend."""
METHODS = ("GET", "POST", "PUT", "DELETE")
MALFORMED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
"""What reading a body raises that is not what it should be."""
logger = logging.getLogger(__name__)


def serve(settings: BridgeSettings, key: str, announce: Announce) -> None:
    """Serve until the process is stopped. `announce` receives the base URL once the bridge answers. The engine's key,
    if it has one, is in the environment (`UPSTREAM_KEY`). Raises EngineError if there is no engine at
    `settings.upstream` that needs a bridge."""
    check_models(settings.models)
    check_exposure(settings.host, key)
    upstream_key = os.environ.get(UPSTREAM_KEY) or None
    engine = recognise(settings.upstream, TELLING_S, upstream_key)
    if engine is None:
        raise EngineError(
            f"{settings.upstream} needs no bridge: it is neither SkyRL nor TuFT",
            "give its address to the SDK itself (TINKER_BASE_URL, or tinker.base_url of a run)",
        )
    if engine.name == "skyrl" and engine.backend is None:
        raise EngineError(
            f"{settings.upstream} has not done a request for {TELLING_S:.0f} s, so its backend cannot be told",
            "start the bridge again when the engine has done its work; its log says what it does",
        )
    limits = {name: Limits.of(name, folder) for name, folder in settings.models.items()}
    listener = http_server.listen(settings.host, settings.port)
    bridge = Bridge(engine, Upstream(settings.upstream, upstream_key), limits, key)
    http_server.serve(create_app(bridge), listener, announce)


def create_app(bridge: Bridge) -> Starlette:
    """Return the ASGI application."""

    async def handle(handler: Handler, request: Request, **path: str) -> Reply:
        return await handler(bridge, await _json_of(request), request)

    async def unreachable(request: Request, error: Exception) -> Response:
        # The SDK sends a 503 again, for five minutes.
        return refusal(503, f"the engine at {bridge.upstream.url} does not answer ({error})")

    by_call = handlers() | {f"{method} /{{rest:path}}": unchanged for method in METHODS}
    routes: Routes = {call: partial(handle, handler) for call, handler in by_call.items()}
    errors = dict.fromkeys(MALFORMED, _unreadable) | {UnreachableError: unreachable}
    return application(routes, "bridge", bridge.key, errors)


async def _unreadable(request: Request, error: Exception) -> Response:
    logger.warning("%s", request.url.path, exc_info=error)
    return refusal(422, f"the request cannot be read ({error!r})")


async def _json_of(request: Request) -> Json:
    """Return the JSON object in the body, an empty one for another kind of body."""
    body = await request.body()
    is_json = body and "protobuf" not in request.headers.get("content-type", "")
    value = json.loads(body) if is_json else {}
    if not isinstance(value, dict):
        raise RequestError("body: not a JSON object", status=422)
    return value
