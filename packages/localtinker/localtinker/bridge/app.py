"""The bridge as an HTTP server."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import logging
from collections.abc import Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from localtinker import http_server
from localtinker.bridge.engines import API, EngineError, recognise
from localtinker.bridge.saving import DOWNLOADS
from localtinker.bridge.state import Bridge, Handler, Limits
from localtinker.bridge.table import rows, unchanged
from localtinker.bridge.upstream import Json, UnreachableError, Upstream
from localtinker.errors import RequestError
from localtinker.settings import BridgeSettings, check_exposure, check_models

TELLING_S = 300.0
"""How long an engine that starts or trains may take to tell its backend."""
METHODS = ("GET", "POST", "PUT", "DELETE")
MALFORMED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
"""What reading a body raises that is not what it should be."""
logger = logging.getLogger(__name__)


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
    limits = {name: Limits.of(folder) for name, folder in settings.models.items()}
    listener = http_server.listen(settings.host, settings.port)
    bridge = Bridge(engine, Upstream(settings.upstream, upstream_key), limits, key)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(http_server.serve(create_app(bridge), listener, announce, grace_s=2))


def create_app(bridge: Bridge) -> Starlette:
    """Return the ASGI application. Every request but downloads, whose URLs are signed, must carry the key."""
    routes = [_route(bridge, row.call, row.handler) for row in rows()]
    routes += [_route(bridge, f"{method} /{{rest:path}}", unchanged) for method in METHODS]
    return Starlette(routes=routes, exception_handlers={HTTPException: _refused})


def _route(bridge: Bridge, call: str, handler: Handler) -> Route:
    method, path = call.split()
    key = None if path.startswith(DOWNLOADS) else bridge.key.encode()

    async def endpoint(request: Request) -> Response:
        presented = request.headers.get("X-API-Key", "").encode()
        if key is not None and not hmac.compare_digest(presented, key):
            return _refusal(401, "X-API-Key: missing or not this bridge's key")
        try:
            answer = await handler(bridge, await _json_of(request), request)
        except RequestError as error:
            return _refusal(error.status, error.message)
        except UnreachableError as error:  # the SDK sends a 503 again, for five minutes
            return _refusal(
                503, f"the engine at {bridge.upstream.url} does not answer ({error})"
            )
        except MALFORMED as error:
            logger.warning("%s", call, exc_info=True)
            return _refusal(422, f"the request cannot be read ({error!r})")
        return answer if isinstance(answer, Response) else JSONResponse(answer)

    return Route(API + path, endpoint, methods=[method])


async def _json_of(request: Request) -> Json:
    """Return the JSON object in the body, an empty one for another kind of body."""
    body = await request.body()
    is_json = body and "protobuf" not in request.headers.get("content-type", "")
    value = json.loads(body) if is_json else {}
    if not isinstance(value, dict):
        raise RequestError("body: not a JSON object", status=422)
    return value


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _refusal(error.status_code, error.detail)


def _refusal(status: int, words: str) -> Response:
    return JSONResponse({"detail": words}, status)
