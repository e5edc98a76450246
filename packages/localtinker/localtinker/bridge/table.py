"""The rows of `table.toml` with their handlers."""

from __future__ import annotations

import sys
from typing import NamedTuple

from starlette.responses import Response

from localtinker.bridge import promises, sampling, saving, training
from localtinker.bridge.capabilities import table
from localtinker.bridge.state import Call, Handler
from localtinker.bridge.upstream import Json


class Row(NamedTuple):
    """A translated call; see `table.toml`."""

    call: str
    since: str
    instead: str
    handler: Handler


async def client_config(call: Call) -> Json:
    return {"parallel_fwdbwd_chunks": False, "sample_enable_stuck_detection": False}


async def nothing_to_do(call: Call) -> Json:
    return {}


async def capabilities(call: Call) -> Json:
    bridge = call.bridge
    contexts = {name: limits.context for name, limits in bridge.limits.items()}
    served = [
        {"model_name": m, "max_context_length": contexts.get(m)} for m in bridge.engine.models
    ]
    return {"supported_models": served}


async def engine(call: Call) -> Json:
    return call.bridge.engine.as_json()


async def unchanged(call: Call) -> Response:
    """Pass on a call without a row."""
    url = call.request.url
    path = url.path.removeprefix("/api/v1") + (f"?{url.query}" if url.query else "")
    method = call.request.method
    body = call.json() if method == "POST" else call.body
    answer = await call.bridge.upstream.send(f"{method} {path}", body)
    return Response(answer.body, answer.for_sdk, media_type=answer.kind)


def rows() -> list[Row]:
    places = {
        "promises": promises,
        "sampling": sampling,
        "saving": saving,
        "training": training,
    }
    places["table"] = sys.modules[__name__]
    made = []
    for row in table()["row"]:
        place, _, name = row["handler"].partition(".")
        made.append(Row(**{**row, "handler": getattr(places[place], name)}))
    return made
