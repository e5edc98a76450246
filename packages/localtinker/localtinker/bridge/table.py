"""The rows of `table.toml` with their handlers."""

from __future__ import annotations

from pkgutil import resolve_name

from starlette.requests import Request
from starlette.responses import Response

from localtinker.bridge.capabilities import table
from localtinker.bridge.state import Bridge, Handler
from localtinker.futures import Json
from localtinker.routing import CLIENT_CONFIG
from localtinker.settings import API


async def client_config(bridge: Bridge, body: Json, request: Request) -> Json:
    return CLIENT_CONFIG


async def nothing_to_do(bridge: Bridge, body: Json, request: Request) -> Json:
    return {}


async def capabilities(bridge: Bridge, body: Json, request: Request) -> Json:
    contexts = {name: limits.max_context for name, limits in bridge.folders.items()}
    names = bridge.engine.models
    models = [{"model_name": m, "max_context_length": contexts.get(m)} for m in names]
    return {"supported_models": models}


async def engine(bridge: Bridge, body: Json, request: Request) -> Json:
    return bridge.engine.as_json()


async def unchanged(bridge: Bridge, body: Json, request: Request) -> Response:
    """Pass on a call without a row."""
    path = str(request.url).partition(API)[2]
    content = body if request.method == "POST" else b""
    answer = await bridge.upstream.send(f"{request.method} {path}", content)
    return Response(answer.body, answer.for_sdk, media_type=answer.kind)


def handlers() -> dict[str, Handler]:
    """Return a mapping of translated call to its handler."""
    rows = table()["row"]
    return {row["call"]: resolve_name(f"{__package__}.{row['handler']}") for row in rows}
