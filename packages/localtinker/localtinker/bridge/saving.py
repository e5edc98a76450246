"""Saved weights through the bridge: saving, listing, download, expiry."""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import tarfile
import time
from datetime import UTC, datetime
from typing import Any

from starlette.responses import Response

from localtinker.bridge.calls import Call
from localtinker.bridge.capabilities import EXPIRY
from localtinker.bridge.promises import EXTERNAL, kind_and_name, trained
from localtinker.bridge.state import Bridge, listed
from localtinker.bridge.upstream import Answer, Json, accepted
from localtinker.errors import NotFoundError, RequestError

DOWNLOADS = "/local/external"
"""Requests below this path are signed instead of having the key."""
_LIFE_S = 3600
_LARGEST_PAGE = 1000


async def save_weights(call: Call) -> Json:
    body = call.fields("model_id", "path")
    return await _save(
        call, "/save_weights", body, "weights", replace=bool(body.get("overwrite"))
    )


async def save_weights_for_sampler(call: Call) -> Json:
    return await _save_sampler(call, call.fields("model_id"))


async def save_weights_external(call: Call) -> Json:
    """The archives of sampler weights are peft's adapters: save one under a marked name."""
    body = call.fields("model_id", "path")
    return await _save_sampler(
        call, body | {"path": EXTERNAL + body["path"], "type": "save_weights_for_sampler"}
    )


async def _save_sampler(call: Call, body: Json) -> Json:
    client = call.bridge.client(body["model_id"])
    name = (
        body.get("path") or f"ss{body.get('sampling_session_seq_id')}_seq{body.get('seq_id')}"
    )
    answer = await _save(
        call, "/save_weights_for_sampler", body, "sampler_weights", replace=True
    )
    client.newest = f"tinker://{client.model}/sampler_weights/{name}"
    client.moved = False
    call.bridge.clients[body["model_id"]] = client
    return answer


async def _save(call: Call, route: str, body: Json, kind: str, *, replace: bool) -> Json:
    """Send a save, once for each sequence number. It is sent before it is answered, because the SDK then sends
    the next step."""
    bridge = call.bridge
    model = bridge.client(body["model_id"]).model
    key = (route, body["model_id"], body.get("seq_id"))
    if body.get("seq_id") is not None and key in bridge.answered:
        return bridge.answered[key]
    content = json.dumps(body | {"model_id": model}).encode()
    answer = await bridge.upstream.send("POST", route, content)
    if answer.status == 409 and replace:
        path = f"/training_runs/{model}/checkpoints/{kind}/{body.get('path')}"
        await bridge.upstream.send("DELETE", path)
        answer = await bridge.upstream.send("POST", route, content)
    bridge.answered[key] = {"request_id": trained(accepted(answer)["request_id"])}
    return bridge.answered[key]


async def weights_info(call: Call) -> Json:
    """SkyRL describes states only. Sampler weights have the rank and model of their client."""
    path = str(call.fields("tinker_path")["tinker_path"])
    model, _, name = path.removeprefix("tinker://").partition("/")
    if not name.startswith("sampler_weights/"):
        return await call.bridge.upstream.post("/weights_info", {"tinker_path": path})
    if path not in {one["tinker_path"] for one in await listed(call.bridge, model)}:
        raise NotFoundError(f"tinker_path: {path!r} does not exist")
    run = accepted(await call.bridge.upstream.send("GET", f"/training_runs/{model}"))
    return {"base_model": run["base_model"], "is_lora": True, "lora_rank": run["lora_rank"]}


async def checkpoints(call: Call) -> Json:
    """List what all training clients saved, newest first."""
    query = call.request.query_params
    offset, limit = int(query.get("offset", 0)), int(query.get("limit", 100))
    page = await call.bridge.upstream.send("GET", f"/training_runs?limit={_LARGEST_PAGE}")
    rows: list[Json] = []
    for run in accepted(page)["training_runs"]:
        rows += map(_as_listed, await listed(call.bridge, run["training_run_id"]))
    rows.sort(key=lambda row: row["time"], reverse=True)
    cursor = {"offset": offset, "limit": limit, "total_count": len(rows)}
    return {"checkpoints": rows[offset : offset + limit], "cursor": cursor}


async def run_checkpoints(call: Call) -> Json:
    run = call.request.path_params["run"]
    return {"checkpoints": [_as_listed(row) for row in await listed(call.bridge, run)]}


def _as_listed(row: Json) -> Json:
    """Return a row of the engine's list with the kind in the id, and with the path of what was saved to download."""
    model, kind, name = row["tinker_path"].removeprefix("tinker://").split("/")
    if kind == "sampler_weights" and name.startswith(EXTERNAL):
        row = row | {
            "checkpoint_type": "external",
            "tinker_path": f"tinker://{model}/{kind_and_name(name)}",
        }
    return row | {"checkpoint_id": row["tinker_path"].split("/", 3)[3]}


async def delete_checkpoint(call: Call) -> Response:
    params = call.request.path_params
    kind, _, name = params["path"].partition("/")
    if kind == "external_weights":
        kind, name = "sampler_weights", EXTERNAL + name
    answer = await call.bridge.upstream.send(
        "DELETE", f"/training_runs/{params['run']}/checkpoints/{kind}/{name}"
    )
    accepted(answer)
    return Response(status_code=204)


async def set_ttl(call: Call) -> Response:
    """Nothing expires: an expiry cannot be set, and there is none to remove."""
    ttl = call.json().get("ttl_seconds")
    if ttl is not None:
        raise RequestError(f"ttl_seconds: {call.bridge.engine.lacks[EXPIRY]}")
    return Response(status_code=204)


async def external_urls(call: Call) -> Json:
    bridge, params = call.bridge, call.request.path_params
    expires = int(time.time()) + _LIFE_S
    server = str(call.request.base_url).rstrip("/")
    base = f"{server}/api/v1{DOWNLOADS}/{params['run']}/{params['name']}"
    urls = {}
    for file in _files(await _archive(bridge, params)):
        signature = _signature(bridge, params, file, expires)
        urls[file] = f"{base}/{file}?expires={expires}&signature={signature}"
    return {"urls": urls, "expires": datetime.fromtimestamp(expires, UTC).isoformat()}


async def external_file(call: Call) -> Response:
    bridge, params, query = call.bridge, call.request.path_params, call.request.query_params
    expires = query.get("expires", "0")
    expected = _signature(bridge, params, params["file"], expires)
    valid = hmac.compare_digest(query.get("signature", "").encode(), expected.encode())
    if not valid or int(expires) < time.time():
        raise NotFoundError(
            "signature: this URL has expired or is not from this bridge; request a new one"
        )
    files = _files(await _archive(bridge, params))
    if params["file"] not in files:
        raise NotFoundError(f"file: there is no {params['file']!r}")
    return Response(files[params["file"]], media_type="application/octet-stream")


def _signature(bridge: Bridge, params: Any, file: str, expires: Any) -> str:
    message = f"{params['run']}\n{params['name']}\n{file}\n{expires}"
    return hmac.new(bridge.key.encode(), message.encode(), hashlib.sha256).hexdigest()


async def _archive(bridge: Bridge, params: Any) -> Answer:
    route = f"/training_runs/{params['run']}/checkpoints/{EXTERNAL}{params['name']}/download"
    answer = await bridge.upstream.send("GET", route)
    if answer.status >= 300:
        accepted(answer)
    return answer


def _files(archive: Answer) -> dict[str, bytes]:
    """Return the files of an adapter's archive, by their path in it."""
    files = {}
    with tarfile.open(fileobj=io.BytesIO(archive.body)) as tar:
        for member in tar:
            content = tar.extractfile(member)
            if content is not None:
                files[member.name.removeprefix("./")] = content.read()
    return files
