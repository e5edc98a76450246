"""Adapters as files for other programs: the URLs of `external_weights_urls`, and what answers them.

Whoever has a URL may fetch its file for an hour, as with the cloud's: these requests carry no key. A URL is signed with a secret of the
running process, so it ends with it, too.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse

from rtl_core.localtinker.errors import NotFoundError
from rtl_core.localtinker.registry import Registry

PREFIX = "/local/external"
"""Below this, a request needs a signature instead of the key."""
_LIFE_S = 3600


def download_routes(registry: Registry) -> APIRouter:
    router = APIRouter()
    secret = secrets.token_bytes(32)

    def sign(path: str, file: str, expires: int) -> str:
        return hmac.new(secret, f"{path}\n{file}\n{expires}".encode(), hashlib.sha256).hexdigest()

    @router.get("/training_runs/{run_id}/checkpoints/external_weights/{name}/external_weights_urls")
    async def urls(run_id: str, name: str, request: Request) -> dict[str, Any]:
        path = _path(run_id, name)
        folder = registry.blob_path(registry.checkpoint(path).blob)
        expires = int(time.time()) + _LIFE_S
        base = f"{str(request.base_url).rstrip('/')}/api/v1{PREFIX}/{quote(run_id)}/{quote(name)}"
        files = sorted(file.name for file in folder.iterdir())
        return {
            "urls": {
                file: f"{base}/{quote(file)}?expires={expires}&signature={sign(path, file, expires)}" for file in files
            },
            "expires": datetime.fromtimestamp(expires, UTC).isoformat(),
        }

    @router.get(PREFIX + "/{run_id}/{name}/{file}")
    async def download(run_id: str, name: str, file: str, expires: int, signature: str) -> FileResponse:
        path = _path(run_id, name)
        if not hmac.compare_digest(signature, sign(path, file, expires)) or expires < time.time():
            raise NotFoundError("signature: this URL has expired or was not made by this service; ask for a new one")
        return FileResponse(registry.blob_path(registry.checkpoint(path).blob) / file)

    return router


def _path(run_id: str, name: str) -> str:
    return f"tinker://{run_id}/external_weights/{name}"
