"""Saved weights through the bridge: saving, listing, download, expiry."""

from __future__ import annotations

import hashlib
import hmac
import io
import tarfile
from datetime import UTC, datetime, timedelta

from starlette.responses import Response

from localtinker.bridge.capabilities import EXPIRY
from localtinker.bridge.promises import EXTERNAL
from localtinker.bridge.state import Call
from localtinker.bridge.upstream import Json
from localtinker.errors import NotFoundError, RequestError

DOWNLOADS = "/local/external"
"""Requests below this path are signed instead of having the key."""
PAGE = 500


async def save_weights(call: Call) -> Json:
    body = call.json("model_id", "path")
    return await _save(call, "/save_weights", body, "weights" if body.get("overwrite") else "")


async def save_weights_for_sampler(call: Call) -> Json:
    return await _save_sampler(call, call.json("model_id"))


async def save_weights_external(call: Call) -> Json:
    """The archives of sampler weights are adapters in peft's format: save one under a marked name."""
    body = call.json("model_id", "path")
    body |= {"path": EXTERNAL + body["path"], "type": "save_weights_for_sampler"}
    answer = await _save_sampler(call, body)
    return {"request_id": answer["request_id"].replace("t.", "e.")}


async def _save_sampler(call: Call, body: Json) -> Json:
    client = call.bridge.client(body["model_id"])
    name = body.get("path") or "ss{sampling_session_seq_id}_seq{seq_id}".format(**body)
    answer = await _save(call, "/save_weights_for_sampler", body, "sampler_weights")
    client.newest, client.moved = f"tinker://{client.model}/sampler_weights/{name}", False
    return answer


async def _save(call: Call, route: str, body: Json, replaced: str) -> Json:
    """Send a save, and replace what has the same name if it is of the kind `replaced`. It is sent before it is
    answered: the SDK then sends the next step."""
    upstream = call.bridge.upstream
    model = call.bridge.client(body["model_id"]).model

    async def send() -> Json:
        saved = {**body, "model_id": model}
        answer = await upstream.send(f"POST {route}", saved)
        if answer.status == 409 and replaced:
            path = f"/training_runs/{model}/checkpoints/{replaced}/{body.get('path')}"
            (await upstream.send(f"DELETE {path}")).json()
            answer = await upstream.send(f"POST {route}", saved)
        return {"request_id": f"t.{answer.json()['request_id']}"}

    return await call.bridge.once((model, body.get("seq_id")), send)


async def weights_info(call: Call) -> Json:
    """SkyRL describes only states: sampler weights are described by the state of the same name."""
    path = call.json("tinker_path")["tinker_path"].replace("/sampler_weights/", "/weights/")
    return await call.bridge.upstream.post("/weights_info", {"tinker_path": path})


async def checkpoints(call: Call) -> Json:
    """List what all training clients saved, the newest first."""
    upstream, query = call.bridge.upstream, call.request.query_params
    offset, limit = int(query.get("offset", 0)), int(query.get("limit", 100))
    runs: list[Json] = []
    rows: list[Json] = []
    total = 1
    while len(runs) < total:
        page = (
            await upstream.send(f"GET /training_runs?limit={PAGE}&offset={len(runs)}")
        ).json()
        runs += page["training_runs"]
        total = page["cursor"]["total_count"]
    for run in runs:
        saved = await upstream.send(f"GET /training_runs/{run['training_run_id']}/checkpoints")
        rows += saved.json()["checkpoints"]
    rows.sort(key=lambda row: row["time"], reverse=True)
    cursor = {"offset": offset, "limit": limit, "total_count": len(rows)}
    return {"checkpoints": rows[offset : offset + limit], "cursor": cursor}


async def set_ttl(call: Call) -> Response:
    """Nothing expires: an expiry cannot be set, and there is none to remove."""
    if call.json().get("ttl_seconds") is not None:
        raise RequestError(f"ttl_seconds: {call.bridge.engine.lacks[EXPIRY]}")
    return Response(status_code=204)


async def external_urls(call: Call) -> Json:
    base = f"{call.request.base_url}api/v1{DOWNLOADS}/{_signature(call)}"
    place = "{run}/{name}".format(**call.request.path_params)
    expires = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    urls = {file: f"{base}/{place}/{file}" for file in await _files(call)}
    return {"urls": urls, "expires": expires}


async def external_file(call: Call) -> Response:
    params = call.request.path_params
    if not hmac.compare_digest(params["signature"].encode(), _signature(call).encode()):
        raise NotFoundError("signature: this URL is not from this bridge")
    return Response((await _files(call))[params["file"]], media_type="application/octet-stream")


def _signature(call: Call) -> str:
    place = "{run}/{name}".format(**call.request.path_params)
    return hmac.new(call.bridge.key.encode(), place.encode(), hashlib.sha256).hexdigest()


async def _files(call: Call) -> dict[str, bytes]:
    """Return the files of a saved adapter, by their path in its archive."""
    route = "/training_runs/{run}/checkpoints/{mark}{name}/download"
    path = route.format(mark=EXTERNAL, **call.request.path_params)
    answer = await call.bridge.upstream.send(f"GET {path}")
    if answer.status >= 300:
        answer.json()
    files = {}
    with tarfile.open(fileobj=io.BytesIO(answer.body)) as tar:
        for member in tar:
            content = tar.extractfile(member)
            if content is not None:
                files[member.name.removeprefix("./")] = content.read()
    return files
