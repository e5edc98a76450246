"""The embedded service behind a proxy in this process that imitates a cloud: refusals, other lists of models, silence."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from benchmarks.rehearsal.proxy import Proxy
from localtinker.process import LocalTinker

Model = dict[str, Any]


class Front(Proxy):
    """Forwards requests to a service, unless an answer is set."""

    def __init__(self, service: LocalTinker) -> None:
        super().__init__(service.base_url)
        self._key = service.api_key
        self.status: int | None = None
        """Status of every answer; None: forward requests."""
        self.busy = 0
        """Number of requests that are answered with 503 before the others are forwarded."""
        self.silent = False
        """Whether requests get no answer."""
        self.list_models: Callable[[list[Model]], list[Model]] = lambda models: models
        self.token: str | None = None
        """The token for which a key is exchanged, as in the cloud; then only the token gives access, not the key."""
        self.page: bytes | None = None
        """A web page that answers every request."""
        self.asked: list[str] = []
        """Paths of all requests."""

    async def serve(self, request: Request) -> Response:
        path = request.url.path
        self.asked.append(path)
        status = self.status
        if self.busy:
            self.busy, status = self.busy - 1, 503
        if self.silent:
            await asyncio.sleep(3600)
        if status is not None:
            return JSONResponse({"detail": f"told to say {status}"}, status)
        if self.page is not None:
            return Response(self.page, media_type="text/html")
        if self.token is not None:
            if path.endswith("/client/config"):
                return JSONResponse({"pjwt_auth_enabled": True})
            if path.endswith("/auth/token"):
                return JSONResponse({"jwt": self.token})
            if request.headers.get("x-api-key") != self.token:
                return JSONResponse({}, 401)
            others = [
                (name, value)
                for name, value in request.scope["headers"]
                if name != b"x-api-key"
            ]
            request = Request(
                {**request.scope, "headers": [*others, (b"x-api-key", self._key.encode())]},
                request.receive,
            )
        response = await super().serve(request)
        if path.endswith("/get_server_capabilities") and response.status_code == 200:
            return JSONResponse(
                {
                    "supported_models": self.list_models(
                        json.loads(response.body)["supported_models"]
                    )
                }
            )
        return response
