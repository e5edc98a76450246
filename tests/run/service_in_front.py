"""The embedded service behind a proxy in this process, which answers what a cloud may: refusals, other lists of models, silence."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from benchmarks.rehearsal.proxy import Proxy
from rtl_core.localtinker.process import LocalTinker

Model = dict[str, Any]


class Front(Proxy):
    """Passes requests on to a service, unless it is told what to answer."""

    def __init__(self, service: LocalTinker) -> None:
        super().__init__(service.base_url)
        self._key = service.api_key
        self.status: int | None = None
        """What every request is answered with, if not by the service."""
        self.busy = 0
        """How many requests are answered with 503 before the others pass."""
        self.silent = False
        """Whether nothing is answered."""
        self.list_models: Callable[[list[Model]], list[Model]] = lambda models: models
        self.token: str | None = None
        """The token that a key is exchanged for, as the cloud does; with it, and no more with the key, models are listed."""
        self.page: bytes | None = None
        """What every request is answered with, if that is a web page."""
        self.asked: list[str] = []
        """Path of every request."""

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
            others = [(name, value) for name, value in request.scope["headers"] if name != b"x-api-key"]
            request = Request(
                {**request.scope, "headers": [*others, (b"x-api-key", self._key.encode())]}, request.receive
            )
        response = await super().serve(request)
        if path.endswith("/get_server_capabilities") and response.status_code == 200:
            return JSONResponse({"supported_models": self.list_models(json.loads(response.body)["supported_models"])})
        return response
