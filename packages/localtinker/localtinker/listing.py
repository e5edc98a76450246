"""Routes for sessions, training runs, checkpoints and the download of their files.

As in the cloud, a download URL works for an hour without a key. It is signed with a secret of the running
process, so a restart invalidates it as well.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import FileResponse, Response

from localtinker import requests as rq
from localtinker.errors import NotFoundError
from localtinker.futures import Json
from localtinker.lora import LoraSpec
from localtinker.registry import KINDS, Registry, SavedWeights, parse_path

Handler = Callable[[Request], Awaitable[Response | Json]]
Routes = dict[str, Handler]
"""Mapping of "METHOD /path" (below /api/v1) to its handler, which returns a response or a JSON object."""
DOWNLOADS = "/local/external"
"""Requests below this path need a signature instead of the key."""
_LIFE_S = 3600  # of a download URL


def run_routes(registry: Registry) -> Routes:
    async def sessions(request: Request) -> Json:
        return {"sessions": _page(request, registry.sessions())[0]}

    async def session(request: Request) -> Json:
        session_id = request.path_params["session_id"]
        row = registry.session(session_id)
        return {
            "training_run_ids": [run["id"] for run in registry.runs(session_id)],
            "sampler_ids": registry.samplers(session_id),
            "display_name": row["display_name"],
            "user_metadata": json.loads(row["user_metadata"] or "null"),
        }

    def run_json(row: Any) -> Json:
        checkpoints = registry.checkpoints(row["id"])

        def latest(kind: str) -> Json | None:
            return next(
                (_checkpoint_json(one) for one in checkpoints if one.kind == kind), None
            )

        return {
            "training_run_id": row["id"],
            "base_model": row["base_model"],
            "model_owner": "local",
            "is_lora": True,
            "lora_rank": LoraSpec.model_validate_json(row["lora"]).rank,
            "last_request_time": _iso(row["last_request"]),
            "user_metadata": json.loads(row["user_metadata"] or "null"),
            "last_checkpoint": latest("weights"),
            "last_sampler_checkpoint": latest("sampler_weights"),
        }

    async def training_runs(request: Request) -> Json:
        rows, cursor = _page(request, registry.runs())
        return {"training_runs": [run_json(row) for row in rows], "cursor": cursor}

    async def training_run(request: Request) -> Json:
        return run_json(registry.run(request.path_params["run_id"]))

    async def run_checkpoints(request: Request) -> Json:
        run_id = request.path_params["run_id"]
        registry.run(run_id)
        return {"checkpoints": [_checkpoint_json(c) for c in registry.checkpoints(run_id)]}

    return {
        "GET /sessions": sessions,
        "GET /sessions/{session_id}": session,
        "GET /training_runs": training_runs,
        "GET /training_runs/{run_id}": training_run,
        "GET /training_runs/{run_id}/checkpoints": run_checkpoints,
    }


def checkpoint_routes(registry: Registry) -> Routes:
    async def checkpoints(request: Request) -> Json:
        rows, cursor = _page(request, registry.checkpoints(), 100)
        return {"checkpoints": [_checkpoint_json(c) for c in rows], "cursor": cursor}

    async def delete_checkpoint(request: Request) -> Response:
        registry.delete_checkpoint(_path(request))
        return Response(status_code=204)

    async def set_ttl(request: Request) -> Response:
        ttl = rq.parse(rq.Ttl, await request.body()).ttl_seconds
        expires = None if ttl is None else time.time() + ttl
        registry.update_checkpoint(_path(request), expires=expires)
        return Response(status_code=204)

    async def publish(request: Request) -> Response:
        public = request.method == "POST"
        registry.update_checkpoint(_path(request), public=int(public))
        return Response(status_code=204)

    async def weights_info(request: Request) -> Json:
        path = rq.parse(rq.TinkerPath, await request.body()).tinker_path
        parse_path(path, "tinker_path")
        checkpoint = registry.checkpoint(path)
        spec = LoraSpec.model_validate_json(checkpoint.lora)
        return {
            "base_model": checkpoint.base_model,
            "is_lora": True,
            "lora_rank": spec.rank,
            **spec.model_dump(exclude={"rank", "seed"}),
        }

    checkpoint = "/training_runs/{run_id}/checkpoints/{kind}/{name}"
    return {
        "GET /checkpoints": checkpoints,
        f"DELETE {checkpoint}": delete_checkpoint,
        f"PUT {checkpoint}/ttl": set_ttl,
        f"POST {checkpoint}/publish": publish,
        f"DELETE {checkpoint}/publish": publish,
        "POST /weights_info": weights_info,
    }


def download_routes(registry: Registry) -> Routes:
    """Return the routes that list download URLs and serve the files."""
    secret = secrets.token_bytes(32)

    def sign(path: str, file: str, expires: int) -> str:
        message = f"{path}\n{file}\n{expires}"
        return hmac.new(secret, message.encode(), hashlib.sha256).hexdigest()

    async def download_urls(request: Request) -> Json:
        run_id = request.path_params["run_id"]
        name = request.path_params["name"]
        path = f"tinker://{run_id}/external_weights/{name}"
        folder = registry.blob_path(registry.checkpoint(path).blob)
        expires = int(time.time()) + _LIFE_S
        route = f"{DOWNLOADS}/{quote(run_id)}/{quote(name)}"
        server = str(request.base_url).rstrip("/")
        base = f"{server}/api/v1{route}"
        urls = {}
        for file in sorted(file.name for file in folder.iterdir()):
            query = f"expires={expires}&signature={sign(path, file, expires)}"
            urls[file] = f"{base}/{quote(file)}?{query}"
        return {"urls": urls, "expires": _iso(expires)}

    async def download(request: Request) -> Response:
        path = "tinker://{run_id}/external_weights/{name}".format(**request.path_params)
        file = request.path_params["file"]
        expires = rq.number(request.query_params, "expires")
        signature = request.query_params.get("signature", "").encode()
        expected = sign(path, file, expires)
        valid = hmac.compare_digest(signature, expected.encode())
        if not valid or expires < time.time():
            raise NotFoundError(
                "signature: this URL is expired or not from this service; request a new one"
            )
        folder = registry.blob_path(registry.checkpoint(path).blob)
        return FileResponse(folder / file)

    return {
        "GET /training_runs/{run_id}/checkpoints/external_weights/{name}/external_weights_urls": download_urls,
        f"GET {DOWNLOADS}/{{run_id}}/{{name}}/{{file}}": download,
    }


def _page(
    request: Request, rows: list[Any], limit: int = 20
) -> tuple[list[Any], dict[str, int]]:
    """Return the requested page of a list, of `limit` rows by default, and its cursor."""
    offset = rq.number(request.query_params, "offset", "0")
    limit = rq.number(request.query_params, "limit", str(limit))
    cursor = {"offset": offset, "limit": limit, "total_count": len(rows)}
    return rows[offset : offset + limit], cursor


def _path(request: Request) -> str:
    path = "tinker://{run_id}/{kind}/{name}".format(**request.path_params)
    parse_path(path, "checkpoint_id")
    return path


def _checkpoint_json(checkpoint: SavedWeights) -> Json:
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
