"""Adapters as files for other programs: the URLs of `external_weights_urls`, and what answers them.

Whoever has a URL may fetch its file for an hour, as with the cloud's: these requests carry no key. A URL is signed with a secret of the
running process, so it ends with it, too.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import FileResponse, Response

from rtl_core.localtinker.errors import NotFoundError
from rtl_core.localtinker.registry import Registry
from rtl_core.localtinker.requests import number

PREFIX = "/local/external"
"""Below this, a request needs a signature instead of the key."""
_LIFE_S = 3600


def download_routes(registry: Registry) -> dict[str, Callable[[Request], Awaitable[Response | dict[str, Any]]]]:
    """Method and path below /api/v1 -> what answers."""
    secret = secrets.token_bytes(32)

    def sign(path: str, file: str, expires: int) -> str:
        return hmac.new(secret, f"{path}\n{file}\n{expires}".encode(), hashlib.sha256).hexdigest()

    async def urls(request: Request) -> dict[str, Any]:
        run_id, name = (request.path_params[part] for part in ("run_id", "name"))
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

    async def download(request: Request) -> Response:
        run_id, name, file = (request.path_params[part] for part in ("run_id", "name", "file"))
        path, expires = _path(run_id, name), number(request.query_params, "expires")
        signature = request.query_params.get("signature", "").encode()
        if not hmac.compare_digest(signature, sign(path, file, expires).encode()) or expires < time.time():
            raise NotFoundError("signature: this URL has expired or was not made by this service; ask for a new one")
        return FileResponse(registry.blob_path(registry.checkpoint(path).blob) / file)

    return {
        "GET /training_runs/{run_id}/checkpoints/external_weights/{name}/external_weights_urls": urls,
        f"GET {PREFIX}/{{run_id}}/{{name}}/{{file}}": download,
    }


def _path(run_id: str, name: str) -> str:
    return f"tinker://{run_id}/external_weights/{name}"
