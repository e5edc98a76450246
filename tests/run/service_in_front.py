"""The embedded service behind a proxy in this process, which answers what a cloud may: refusals, other lists of models, silence."""

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import uvicorn
from starlette.types import Receive, Scope, Send

from rtl_core.localtinker.process import LocalTinker

Model = dict[str, Any]


class Front:
    """An ASGI application that passes requests on to a service, unless it is told what to answer."""

    def __init__(self, service: LocalTinker) -> None:
        self._service = service
        self.url = ""
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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        self.asked.append(scope["path"])
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        status, kind, answer = await self._answer(scope, body)
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]})
        await send({"type": "http.response.body", "body": answer})

    async def _answer(self, scope: Scope, body: bytes) -> tuple[int, bytes, bytes]:
        status = self.status
        if self.busy:
            self.busy, status = self.busy - 1, 503
        if self.silent:
            await asyncio.sleep(3600)
        if status is not None:
            return status, b"application/json", json.dumps({"detail": f"told to say {status}"}).encode()
        if self.page is not None:
            return 200, b"text/html", self.page
        headers = {name.decode(): value.decode() for name, value in scope["headers"] if name != b"host"}
        if self.token is not None:
            if scope["path"].endswith("/client/config"):
                return 200, b"application/json", b'{"pjwt_auth_enabled": true}'
            if scope["path"].endswith("/auth/token"):
                return 200, b"application/json", json.dumps({"jwt": self.token}).encode()
            if headers.get("x-api-key") != self.token:
                return 401, b"application/json", b"{}"
            headers["x-api-key"] = self._service.api_key
        async with httpx.AsyncClient(base_url=self._service.base_url, timeout=60) as client:
            passed = await client.request(scope["method"], scope["path"], content=body, headers=headers)
        answer = passed.content
        if scope["path"].endswith("/get_server_capabilities") and passed.is_success:
            answer = json.dumps({"supported_models": self.list_models(passed.json()["supported_models"])}).encode()
        return passed.status_code, passed.headers["content-type"].encode(), answer


@contextmanager
def in_front_of(service: LocalTinker) -> Iterator[Front]:
    """A front at an address of its own."""
    front = Front(service)
    listener = socket.create_server(("127.0.0.1", 0))
    front.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    server = uvicorn.Server(
        uvicorn.Config(front, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=1)
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield front
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
