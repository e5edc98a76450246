"""A loopback proxy between the SDK and a Tinker service, which injects faults (faults.py).

Bodies (JSON and protobuf) pass unchanged unless a fault changes them. The proxy reads from a request which
call it is (`route`), and which session, sampler or trainer it names.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
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

NOT_PASSED = frozenset(
    {"content-length", "transfer-encoding", "connection", "content-encoding", "date", "server"}
)


@dataclass
class Met:
    """Progress of a fault that a request has met. Times are on the monotonic clock."""

    at: float
    call: str
    """The call that met it first."""
    times: int = 0
    over_at: float | None = None


@dataclass
class Call:
    """One request on its way to the service."""

    proxy: Proxy
    request: Request
    body: bytes
    said: dict[str, Any]
    """Its JSON, or the trainer that its protobuf names."""
    route: str

    async def send(self) -> Response:
        """Forward the request and return the service's answer."""
        return await self.proxy.forward(self)

    @property
    def owners(self) -> dict[str, str]:
        """The `sampler`, `trainer` and `session` that it names. Names of samplers and trainers begin with
        that of their session."""
        named = {
            "sampler": self.said.get("sampling_session_id"),
            "trainer": self.said.get("model_id"),
        }
        found = {kind: name for kind, name in named.items() if name}
        session = self.said.get("session_id") or next(
            (name.split(":")[0] for name in found.values()), None
        )
        return {**found, **({"session": session} if session else {})}


class Proxy:
    """Serves in a thread of this process inside a `with` block, at `url`. One fault is met at a time: the
    next begins when it is over."""

    def __init__(
        self,
        upstream: str,
        faults: Sequence[Fault] = (),
        seconds: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """`seconds`: time from a call of a route to its answer, for a service that is slower than this one;
        it varies by a third."""
        self.met: dict[str, Met] = {}
        """Name of a fault -> its progress."""
        self.lost: dict[str, tuple[int, str]] = {}
        """Session, sampler or trainer that a fault has ended -> status and detail for requests that name it."""
        self.http: httpx.AsyncClient
        self._faults, self._upstream, self._seconds = faults, upstream, seconds
        self._random = random.Random("rehearsal")
        self._ready: dict[str, float] = {}
        """Id of an accepted request -> when its answer is ready, on the monotonic clock."""
        self._steps = 0
        self._numbers: Counter[str] = Counter()
        self._promised: dict[str, str] = {}
        """Id of an accepted request whose answer is to be fetched -> its route."""
        methods = ["GET", "POST", "PUT", "DELETE"]
        app = Starlette(
            routes=[Route("/{path:path}", self.serve, methods=methods)], lifespan=self._open
        )
        config = uvicorn.Config(
            app, port=0, log_level="critical", access_log=False, timeout_keep_alive=120
        )
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
        """The fault that was met and is not over yet."""
        met = (fault for fault in self._faults if fault.name in self.met)
        return next((fault for fault in met if self.met[fault.name].over_at is None), None)

    @asynccontextmanager
    async def _open(self, app: Starlette) -> AsyncIterator[None]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(
            base_url=self._upstream, timeout=None, limits=limits
        ) as self.http:
            yield

    async def serve(self, request: Request) -> Response:
        """Answer a request: by the service, or by the fault that it meets."""
        body = await request.body()
        said = read_body(request, body)
        call = Call(self, request, body, said, self._route_of(request, said))
        self._numbers[call.route] += 1
        for name in call.owners.values():
            if name in self.lost:
                status, detail = self.lost[name]
                return JSONResponse({"detail": detail}, status)
        if (fault := self._due(call.route)) is not None:
            met = self.met.setdefault(
                fault.name, Met(time.monotonic(), f"{call.route} #{self._numbers[call.route]}")
            )
            met.times += 1
            return await fault.strike(call)
        response = await call.send()
        fault = self.open_fault
        if (
            response.status_code == 200
            and fault
            and call.route in (fault.mended_by or fault.routes)
            and self._is_spent(fault)
        ):
            self.end(fault)
        return response

    def _due(self, route: str) -> Fault | None:
        """The fault that a request meets: the open one, else the first in the table with its route."""
        current = self.open_fault
        if current is not None:
            return current if route in current.routes and not self._is_spent(current) else None
        waiting = (
            fault
            for fault in self._faults
            if fault.name not in self.met and fault.after <= self._steps
        )
        return next((fault for fault in waiting if route in fault.routes), None)

    def _is_spent(self, fault: Fault) -> bool:
        """Whether it strikes no more, because it has struck often or long enough."""
        met = self.met[fault.name]
        if fault.ends == "stops":
            return False
        return (
            time.monotonic() >= met.at + fault.lasts_s
            if fault.lasts_s
            else met.times >= fault.times
        )

    def end(self, fault: Fault) -> None:
        self.met[fault.name].over_at = time.monotonic()

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
        """Forward a request, and remember the route of an answer that the service promises."""
        request = call.request
        if "answer of" in call.route:
            ready = self._ready.get(call.said["request_id"], 0.0)
            await asyncio.sleep(max(0.0, ready - time.monotonic()))
        left_out = (b"host", b"connection", b"accept-encoding", b"content-length")
        headers = [(name, value) for name, value in request.headers.raw if name not in left_out]
        target = httpx.URL(path=request.url.path, query=request.url.query.encode())
        answer = await self.http.request(
            request.method, target, content=call.body, headers=headers
        )
        if (
            answer.status_code == 200
            and b'"request_id"' in answer.content[:200]
            and "answer of" not in call.route
        ):
            request_id = answer.json().get("request_id")
            if (
                request_id not in self._promised
            ):  # else it was sent again after its connection broke
                self._promised[request_id] = call.route
                seconds = self._seconds.get(call.route, 0.0) * self._random.lognormvariate(
                    0, 0.3
                )
                self._ready[request_id] = time.monotonic() + seconds
                self._steps += call.route == "optim_step"
        kept = {name: value for name, value in answer.headers.items() if name not in NOT_PASSED}
        return Response(answer.content, answer.status_code, kept)


def read_body(request: Request, body: bytes) -> dict[str, Any]:
    """The JSON of a request, or the trainer that its protobuf names."""
    if not body:
        return {}
    if request.url.path.endswith("/forward_backward"):
        if request.headers.get("content-encoding") == "zstd":
            body = zstandard.ZstdDecompressor().decompress(body, max_output_size=1 << 28)
        message = pb.ForwardBackwardRequest.FromString(body)
        return {"model_id": message.model_id, "seq_id": message.seq_id}
    said = json.loads(body)
    return said if isinstance(said, dict) else {}
