"""A proxy on loopback between the SDK and a Tinker service, with faults (faults.py).

Bodies go through unchanged, JSON and protobuf, unless a fault changes them. What a request is about is read from it: which call it is
(`route`), and which session, sampler or trainer it names.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import httpx
import uvicorn
import zstandard
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tinker.proto import tinker_public_pb2 as pb

if TYPE_CHECKING:
    from benchmarks.rehearsal.faults import Fault

NOT_PASSED = frozenset({"content-length", "transfer-encoding", "connection", "content-encoding", "date", "server"})


@dataclass
class Met:
    """What became of a fault that a request has met. Times are on the monotonic clock."""

    at: float
    call: str
    """Which call met it first."""
    times: int = 0
    over_at: float | None = None


@dataclass
class Call:
    """One request on its way to the service."""

    proxy: Proxy
    request: Request
    body: bytes
    said: dict[str, Any]
    """Its JSON, or the trainer that a protobuf names."""
    route: str

    async def send(self) -> Response:
        """Pass it on; returns what the service answers."""
        return await self.proxy.forward(self)

    @property
    def owners(self) -> dict[str, str]:
        """What it names: `sampler`, `trainer` and `session`. A sampler's or trainer's name begins with that of its session."""
        named = {"sampler": self.said.get("sampling_session_id"), "trainer": self.said.get("model_id")}
        found = {kind: name for kind, name in named.items() if name}
        session = self.said.get("session_id") or next((name.split(":")[0] for name in found.values()), None)
        return {**found, **({"session": session} if session else {})}


class Proxy:
    """Serves in a thread of this process while the block runs; `url` is where.

    Faults are met one at a time: while one is neither mended nor over, no other one begins.
    """

    def __init__(self, upstream: str, faults: Sequence[Fault] = ()) -> None:
        self.met: dict[str, Met] = {}
        """Name of a fault -> what became of it."""
        self.lost: dict[str, tuple[int, str]] = {}
        """Session, sampler or trainer that a fault ended -> how a request that names it is refused."""
        self.http: httpx.AsyncClient
        self._faults, self._upstream = faults, upstream
        self._steps = 0
        self._numbers: Counter[str] = Counter()
        self._promised: dict[str, str] = {}
        """Id of a request that the service accepted and whose answer is to be fetched -> its route."""
        methods = ["GET", "POST", "PUT", "DELETE"]
        app = Starlette(routes=[Route("/{path:path}", self.serve, methods=methods)], lifespan=self._open)
        config = uvicorn.Config(app, port=0, log_level="critical", access_log=False, timeout_keep_alive=120)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        while not self._server.started:
            if not self._thread.is_alive():
                raise RuntimeError("the proxy did not start")
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join()

    @property
    def url(self) -> str:
        host, port = self._server.servers[0].sockets[0].getsockname()[:2]
        return f"http://{host}:{port}"

    @property
    def open_fault(self) -> Fault | None:
        """The fault that was met and is not over."""
        met = (fault for fault in self._faults if fault.name in self.met)
        return next((fault for fault in met if self.met[fault.name].over_at is None), None)

    def end(self, fault: Fault) -> None:
        """It does not strike again."""
        self.met[fault.name].over_at = time.monotonic()

    @asynccontextmanager
    async def _open(self, app: Starlette) -> AsyncIterator[None]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=self._upstream, timeout=None, limits=limits) as self.http:
            yield

    async def serve(self, request: Request) -> Response:
        """The service's answer to a request, or that of the fault that it meets."""
        body = await request.body()
        said = read_body(request, body)
        call = Call(self, request, body, said, self._route_of(request, said))
        self._numbers[call.route] += 1
        for name in call.owners.values():
            if name in self.lost:
                status, detail = self.lost[name]
                return JSONResponse({"detail": detail}, status)
        if (fault := self._due(call.route)) is not None:
            met = self.met.setdefault(fault.name, Met(time.monotonic(), f"{call.route} #{self._numbers[call.route]}"))
            met.times += 1
            return await fault.strike(call)
        response = await call.send()
        if response.status_code == 200:
            self._mended_by(call.route)
        return response

    def _due(self, route: str) -> Fault | None:
        """The fault that a request meets: the open one, else the next of its route, in the order of the table."""
        current = self.open_fault
        if current is not None:
            return current if route in current.routes and not self._is_spent(current) else None
        waiting = (fault for fault in self._faults if fault.name not in self.met and fault.after <= self._steps)
        return next((fault for fault in waiting if route in fault.routes), None)

    def _is_spent(self, fault: Fault) -> bool:
        """Whether it strikes no more: it has struck as often, or for as long, as it should."""
        met = self.met[fault.name]
        if fault.ends == "stops":
            return False
        return time.monotonic() >= met.at + fault.lasts_s if fault.lasts_s else met.times >= fault.times

    def _mended_by(self, route: str) -> None:
        """A request of a route was served: the open fault may have waited for it."""
        fault = self.open_fault
        if fault is not None and self._is_spent(fault) and route in (fault.mended_by or fault.routes):
            self.end(fault)

    def _route_of(self, request: Request, said: dict[str, Any]) -> str:
        name = request.url.path.rsplit("/", 1)[-1]
        if name == "asample":
            return "score" if said.get("prompt_logprobs") else "sample"
        if name == "create_sampling_session" and said.get("model_path"):
            return "open saved weights"
        if name == "retrieve_future" and said.get("request_id") in self._promised:
            return f"answer of {self._promised[said['request_id']]}"
        return name

    async def forward(self, call: Call) -> Response:
        """Pass a request on, and note what the service promised."""
        request = call.request
        left_out = (b"host", b"connection", b"accept-encoding", b"content-length")
        headers = [(name, value) for name, value in request.headers.raw if name not in left_out]
        target = httpx.URL(path=request.url.path, query=request.url.query.encode())
        answer = await self.http.request(request.method, target, content=call.body, headers=headers)
        if answer.status_code == 200 and b'"request_id"' in answer.content[:200] and "answer of" not in call.route:
            request_id = answer.json().get("request_id")
            if request_id not in self._promised:  # otherwise sent again after its connection broke
                self._promised[request_id] = call.route
                self._steps += call.route == "optim_step"
        kept = {name: value for name, value in answer.headers.items() if name not in NOT_PASSED}
        return Response(answer.content, answer.status_code, kept)


def read_body(request: Request, body: bytes) -> dict[str, Any]:
    """What a request says of itself: its JSON, or the trainer that a protobuf names."""
    if not body:
        return {}
    if request.url.path.endswith("/forward_backward"):
        if request.headers.get("content-encoding") == "zstd":
            body = zstandard.ZstdDecompressor().decompress(body, max_output_size=1 << 28)
        message = pb.ForwardBackwardRequest.FromString(body)
        return {"model_id": message.model_id, "seq_id": message.seq_id}
    said = json.loads(body)
    return said if isinstance(said, dict) else {}
