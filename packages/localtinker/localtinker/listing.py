"""Routes for sessions, training runs, checkpoints and the download of their files."""

from __future__ import annotations

import json
import secrets
import time
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, Response

from localtinker import requests as rq
from localtinker.futures import Json
from localtinker.lora import LoraSpec
from localtinker.registry import KINDS, PATH, Registry, SavedWeights
from localtinker.routing import DOWNLOADS, Downloads, Routes, iso, page


def run_routes(registry: Registry) -> Routes:
    async def sessions(request: Request) -> Json:
        return page(request, "sessions", registry.sessions())

    async def session(request: Request, session_id: str) -> Json:
        row = registry.session(session_id)
        return {
            "training_run_ids": [run["id"] for run in registry.runs(session_id)],
            "sampler_ids": registry.samplers(session_id),
            "display_name": row["display_name"],
            "user_metadata": json.loads(row["user_metadata"] or "null"),
        }

    def run_json(row: Any) -> Json:
        checkpoints = registry.checkpoints(row["id"])
        latest = {one.kind: _checkpoint_json(one) for one in reversed(checkpoints)}
        return {
            "training_run_id": row["id"],
            "base_model": row["base_model"],
            "model_owner": "local",
            "is_lora": True,
            "lora_rank": LoraSpec.model_validate_json(row["lora"]).rank,
            "last_request_time": iso(row["last_request"]),
            "user_metadata": json.loads(row["user_metadata"] or "null"),
            "last_checkpoint": latest.get("weights"),
            "last_sampler_checkpoint": latest.get("sampler_weights"),
        }

    async def training_runs(request: Request) -> Json:
        return page(request, "training_runs", registry.runs(), run_json)

    async def training_run(request: Request, run_id: str) -> Json:
        return run_json(registry.run(run_id))

    async def run_checkpoints(request: Request, run_id: str) -> Json:
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
        return page(request, "checkpoints", registry.checkpoints(), _checkpoint_json, 100)

    async def delete_checkpoint(request: Request, **path: str) -> None:
        registry.delete_checkpoint(PATH.format(**path))

    async def set_ttl(request: Request, **path: str) -> None:
        ttl = rq.parse(rq.Ttl, await request.body()).ttl_seconds
        expires = None if ttl is None else time.time() + ttl
        registry.update_checkpoint(PATH.format(**path), expires=expires)

    async def publish(request: Request, **path: str) -> None:
        registry.update_checkpoint(PATH.format(**path), public=request.method == "POST")

    async def weights_info(request: Request) -> Json:
        path = rq.parse(rq.TinkerPath, await request.body()).tinker_path
        checkpoint = registry.checkpoint(path, "tinker_path")
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
    """Return the routes that list download URLs and serve the files. A restart invalidates the URLs."""
    downloads = Downloads(secrets.token_bytes(32))

    def folder_of(run_id: str, name: str) -> Path:
        path = PATH.format(run_id=run_id, kind="external_weights", name=name)
        return registry.blob_path(registry.checkpoint(path).blob)

    async def download_urls(request: Request, **path: str) -> Json:
        return downloads.urls(request, (file.name for file in folder_of(**path).iterdir()))

    async def download(request: Request, file: str, **path: str) -> Response:
        downloads.check(request)
        return FileResponse(folder_of(**path) / file)

    return {
        "GET /training_runs/{run_id}/checkpoints/external_weights/{name}/external_weights_urls": download_urls,
        f"GET {DOWNLOADS}/{{run_id}}/{{name}}/{{file}}": download,
    }


def _checkpoint_json(checkpoint: SavedWeights) -> Json:
    return {
        "checkpoint_id": f"{checkpoint.kind}/{checkpoint.name}",
        "checkpoint_type": KINDS[checkpoint.kind],
        "time": iso(checkpoint.created),
        "tinker_path": checkpoint.path,
        "size_bytes": checkpoint.size_bytes,
        "public": checkpoint.public,
        "user_metadata": checkpoint.user_metadata,
        "expires_at": None if checkpoint.expires is None else iso(checkpoint.expires),
    }
