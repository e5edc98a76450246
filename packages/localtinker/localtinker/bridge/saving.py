"""Saved weights through the bridge: saving, listing, download, expiry."""

from __future__ import annotations

import io
import tarfile

from starlette.requests import Request
from starlette.responses import Response

from localtinker.bridge.capabilities import EXPIRY
from localtinker.bridge.promises import EXTERNAL
from localtinker.bridge.state import Bridge
from localtinker.errors import RequestError
from localtinker.futures import Json
from localtinker.routing import Downloads, page

PAGE = 500


async def save_weights(bridge: Bridge, body: Json, request: Request) -> Json:
    replaced = "weights" if body.get("overwrite") else ""
    return await _save(bridge, "POST /save_weights", body, replaced)


async def save_weights_for_sampler(bridge: Bridge, body: Json, request: Request) -> Json:
    client = bridge.client(body["model_id"])
    name = body.get("path") or f"ss{body['sampling_session_seq_id']}_seq{body['seq_id']}"
    answer = await _save(bridge, "POST /save_weights_for_sampler", body, "sampler_weights")
    client.newest, client.moved = f"tinker://{client.model}/sampler_weights/{name}", False
    return answer


async def save_weights_external(bridge: Bridge, body: Json, request: Request) -> Json:
    """The archives of sampler weights are adapters in peft's format: save one under a marked name."""
    body |= {"path": EXTERNAL + body["path"], "type": "save_weights_for_sampler"}
    answer = await save_weights_for_sampler(bridge, body, request)
    return {"request_id": answer["request_id"].replace("t", "e")}


async def _save(bridge: Bridge, call: str, body: Json, replaced: str) -> Json:
    """Send a save, and replace what has the same name if it is of the kind `replaced`. It is sent before it is
    answered: the SDK then sends the next step."""
    model = bridge.client(body["model_id"]).model
    saved = {**body, "model_id": model}
    saved.pop("user_metadata", None)  # newer than the engines

    async def send() -> Json:
        answer = await bridge.upstream.send(call, saved)
        if answer.status == 409 and replaced:
            path = f"/training_runs/{model}/checkpoints/{replaced}/{body.get('path')}"
            (await bridge.upstream.send(f"DELETE {path}")).json()
            answer = await bridge.upstream.send(call, saved)
        return {"request_id": f"t.{answer.json()['request_id']}"}

    return await bridge.once((model, body.get("seq_id")), send)


async def weights_info(bridge: Bridge, body: Json, request: Request) -> Json:
    """SkyRL describes only states: sampler weights are described by the state of the same name."""
    path = body["tinker_path"].replace("/sampler_weights/", "/weights/")
    return await bridge.upstream.post("/weights_info", {"tinker_path": path})


async def checkpoints(bridge: Bridge, body: Json, request: Request) -> Json:
    """List what all training clients saved, the newest first."""
    runs: list[Json] = []
    rows: list[Json] = []
    while len(runs) % PAGE == 0:
        listing = f"GET /training_runs?limit={PAGE}&offset={len(runs)}"
        more = (await bridge.upstream.send(listing)).json()["training_runs"]
        if not more:
            break
        runs += more
    for run in runs:
        rows += await bridge.saved(run["training_run_id"])
    rows.sort(key=lambda row: row["time"], reverse=True)
    return page(request, "checkpoints", rows, limit=100)


async def set_ttl(bridge: Bridge, body: Json, request: Request) -> None:
    """Nothing expires: an expiry cannot be set, and there is none to remove."""
    if body.get("ttl_seconds") is not None:
        raise RequestError(f"ttl_seconds: {bridge.engine.lacks[EXPIRY]}")


async def external_urls(bridge: Bridge, body: Json, request: Request) -> Json:
    return _downloads(bridge).urls(request, await _files(bridge, request))


async def external_file(bridge: Bridge, body: Json, request: Request) -> Response:
    _downloads(bridge).check(request)
    content = (await _files(bridge, request))[request.path_params["file"]]
    return Response(content, media_type="application/octet-stream")


def _downloads(bridge: Bridge) -> Downloads:
    """Signed with the key, so that URLs survive a restart."""
    return Downloads(bridge.key.encode())


async def _files(bridge: Bridge, request: Request) -> dict[str, bytes]:
    """Return the files of a saved adapter, by their path in its archive."""
    path = "/training_runs/{run_id}/checkpoints/{mark}{name}/download"
    path = path.format(mark=EXTERNAL, **request.path_params)
    archive = (await bridge.upstream.send(f"GET {path}")).content()
    files = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            content = tar.extractfile(member)
            if content is not None:
                files[member.name.removeprefix("./")] = content.read()
    return files
