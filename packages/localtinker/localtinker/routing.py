"""What the servers of this package share: routes with a key, error answers, pages of a listing and signed downloads.

Plain Starlette: FastAPI would add a tenth to the start-up time and double the time of a small request.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ExceptionHandler, StatelessLifespan

from localtinker.errors import NotFoundError, RequestError
from localtinker.futures import Answer, Json
from localtinker.settings import API

Reply = Response | Answer | None
Handler = Callable[..., Awaitable[Reply]]
Routes = dict[str, Handler]
"""Mapping of "METHOD /path" (below /api/v1) to its handler. It is called with the request and the parameters of its
path, and replies with a response, protobuf, a JSON object or nothing (204)."""
CLIENT_CONFIG = {"parallel_fwdbwd_chunks": False, "sample_enable_stuck_detection": False}
"""The answer to `POST /client/config`."""
DOWNLOADS = "/local/external"
"""Requests below this path need a signature instead of the key."""
_LIFE_S = 3600  # of a download URL


def application(
    routes: Routes,
    server: str,
    key: str | None,
    errors: Mapping[Any, ExceptionHandler],
    lifespan: StatelessLifespan | None = None,
) -> Starlette:
    """Return the ASGI application of a `server`, which messages name so. With `key`, every request but downloads, whose
    URLs are signed, must carry it in X-API-Key. `errors`: how further exceptions are answered."""

    def route(name: str, handler: Handler) -> Route:
        method, path = name.split()
        needed = None if key is None or path.startswith(DOWNLOADS) else key.encode()

        async def endpoint(request: Request) -> Response:
            presented = request.headers.get("X-API-Key", "").encode()
            if needed is not None and not hmac.compare_digest(presented, needed):
                raise RequestError(f"X-API-Key: missing or not this {server}'s key", status=401)
            answer = await handler(request, **request.path_params)
            if answer is None:
                return Response(status_code=204)
            if isinstance(answer, bytes):
                return Response(answer, media_type="application/x-protobuf")
            return answer if isinstance(answer, Response) else JSONResponse(answer)

        return Route(f"{API}{path}", endpoint, methods=[method])

    return Starlette(
        routes=[route(name, handler) for name, handler in routes.items()],
        exception_handlers={RequestError: _refused, HTTPException: _refused, **errors},
        lifespan=lifespan,
    )


async def _refused(request: Request, error: Exception) -> Response:
    if isinstance(error, RequestError):
        return refusal(error.status, error.message)
    assert isinstance(error, HTTPException)
    return refusal(error.status_code, error.detail)


def refusal(status: int, words: str) -> Response:
    return JSONResponse({"detail": words}, status)


def number(query: Mapping[str, str], name: str, default: str = "") -> int:
    """Return a query parameter as an integer >= 0. Raises RequestError (422) for anything else."""
    text = query.get(name, default)
    if not text.isdecimal():
        raise RequestError(f"{name}: {text!r} is not a whole number", status=422)
    return int(text)


def page(
    request: Request,
    name: str,
    rows: list[Any],
    to_json: Callable[[Any], Any] | None = None,
    limit: int = 20,
) -> Json:
    """Return the requested page of a list under its name, of `limit` rows by default, and its cursor. `to_json` is
    called for the rows of the page only."""
    offset = number(request.query_params, "offset", "0")
    limit = number(request.query_params, "limit", str(limit))
    cursor = {"offset": offset, "limit": limit, "total_count": len(rows)}
    shown = rows[offset : offset + limit]
    return {name: list(map(to_json, shown)) if to_json else shown, "cursor": cursor}


@dataclass(frozen=True)
class Downloads:
    """URLs of the files of saved weights that work for an hour without a key, as in the cloud: they are signed with
    `secret`. Requests name the weights by the parameters `run_id` and `name` of their path."""

    secret: bytes

    def urls(self, request: Request, files: Iterable[str]) -> Json:
        """Return the URL of each file of the weights that a request names."""
        expires = int(time.time()) + _LIFE_S
        urls = {}
        for file in sorted(files):
            path = "{run_id}/{name}/{file}".format(**request.path_params, file=file)
            path = f"{API}{DOWNLOADS}/{path}"
            query = f"expires={expires}&signature={self._signature(path, expires)}"
            urls[file] = f"{request.base_url}{quote(path[1:])}?{query}"
        return {"urls": urls, "expires": iso(expires)}

    def check(self, request: Request) -> None:
        """Raise NotFoundError for the URL of a download that is not from here or has expired."""
        query = request.query_params
        expires = number(query, "expires")
        expected = self._signature(request.url.path, expires)
        signature = query.get("signature", "").encode()
        valid = hmac.compare_digest(signature, expected.encode())
        if not valid or expires < time.time():
            raise NotFoundError(
                "signature: this URL is expired or not from this service; request a new one"
            )

    def _signature(self, path: str, expires: int) -> str:
        message = f"{path}\n{expires}"
        return hmac.new(self.secret, message.encode(), hashlib.sha256).hexdigest()


def iso(timestamp: float) -> str:
    return datetime.fromtimestamp(timestamp, UTC).isoformat()
