"""A proxy before the embedded service that breaks one promise of the protocol."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from tinker.proto import tinker_public_pb2 as pb


class Crippling:
    """What a proxy changes on the way; this one changes nothing."""

    def request(self, route: str, body: bytes) -> bytes:
        return body

    def response(self, route: str, asked: bytes, status: int, body: bytes) -> tuple[int, bytes]:
        """`route` is that of the request; the result of a promise comes with the route that promised it, and with what was asked there."""
        return status, body


class Edited(Crippling):
    """JSON requests of one route get other values of some fields, or of fields of these."""

    def __init__(self, route: str, **fields: Any) -> None:
        self._route, self._fields = route, fields

    def request(self, route: str, body: bytes) -> bytes:
        if route != self._route:
            return body
        values = json.loads(body)
        if isinstance(values, dict):
            for name, value in self._fields.items():
                values[name] = {**values.get(name, {}), **value} if isinstance(value, dict) else value
        return json.dumps(values).encode()


class WrongLogprobs(Crippling):
    """Sampled tokens come with log-probabilities of another temperature."""

    def response(self, route: str, asked: bytes, status: int, body: bytes) -> tuple[int, bytes]:
        if route == "asample result" and status == 200 and not body.startswith(b"{"):
            message = pb.SampleResponse.FromString(body)
            for sequence in message.sequences:
                sequence.logprobs = (np.frombuffer(sequence.logprobs, np.float32) * 0.8).tobytes()
            body = message.SerializeToString()
        return status, body


class Unfrozen(Crippling):
    """A sampler of a training run always samples from the newest weights that were opened of it."""

    def __init__(self) -> None:
        self._run_of: dict[str, str] = {}
        self._newest: dict[str, str] = {}

    def request(self, route: str, body: bytes) -> bytes:
        if route == "asample":
            values = json.loads(body)
            run = self._run_of.get(values.get("sampling_session_id"))
            if run is not None:
                values["sampling_session_id"] = self._newest[run]
                values["seq_id"] = None  # numbers count by sampler
            return json.dumps(values).encode()
        return body

    def response(self, route: str, asked: bytes, status: int, body: bytes) -> tuple[int, bytes]:
        if route == "create_sampling_session" and status == 200:
            path, sampler = json.loads(asked).get("model_path"), json.loads(body)["sampling_session_id"]
            if path:
                run = path.removeprefix("tinker://").split("/")[0]
                self._run_of[sampler] = self._newest[run] = run
                self._newest[run] = sampler
        return status, body


class Answering(Crippling):
    """One route answers wrong requests, or all (`every`), with another status."""

    def __init__(self, route: str, status: int, *, every: bool = False) -> None:
        self._route, self._status, self._every = route, status, every

    def response(self, route: str, asked: bytes, status: int, body: bytes) -> tuple[int, bytes]:
        if route == self._route and (self._every or 400 <= status < 500):
            return self._status, b'{"detail": "Internal Server Error"}'
        return status, body


class Silent(Crippling):
    """One route never keeps what it promised: the SDK asks again and again."""

    def __init__(self, route: str) -> None:
        self._route = route

    def response(self, route: str, asked: bytes, status: int, body: bytes) -> tuple[int, bytes]:
        if route == f"{self._route} result":
            return 408, b'{"type": "try_again", "request_id": "", "queue_state": "active"}'
        return status, body


@contextmanager
def crippled(base_url: str, crippling: Crippling) -> Iterator[str]:
    """The address of a proxy before the service at `base_url`."""
    promised: dict[str, tuple[str, bytes]] = {}

    async def forward(request: Request) -> Response:
        route = request.path_params["route"]
        asked = await request.body()
        body = crippling.request(route, asked)
        headers = {name: value for name, value in request.headers.items() if name not in ("host", "content-length")}
        answer = await http.request(
            request.method, request.url.path, params=request.url.query, headers=headers, content=body
        )
        if route == "retrieve_future":
            route, asked = promised.get(json.loads(asked)["request_id"], (route, asked))
            route += " result"
        status, content = crippling.response(route, asked, answer.status_code, answer.content)
        if status == 200 and content.startswith(b'{"request_id"'):
            promised[json.loads(content)["request_id"]] = (route, asked)
        kept = {name: value for name, value in answer.headers.items() if name == "content-type"}
        return Response(content, status, kept)

    http = httpx.AsyncClient(base_url=base_url, timeout=120)
    methods = ["GET", "POST", "PUT", "DELETE"]
    app = Starlette(routes=[Route("/api/v1/{route:path}", forward, methods=methods)])
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, lifespan="off"))
    ready = threading.Event()

    async def serve() -> None:
        config = server.config
        config.load()
        server.lifespan = config.lifespan_class(config)
        await server.startup()
        ready.set()
        await server.main_loop()
        await server.shutdown()
        await http.aclose()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    assert ready.wait(60)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(60)
