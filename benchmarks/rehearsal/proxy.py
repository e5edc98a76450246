"""A reverse proxy on loopback between a run and a Tinker service: a cloud's latencies, and faults at planned requests.

Bodies go through unchanged, JSON and protobuf. What a request is about is read from them: which session, sampler or trainer it names, and
which request an answer belongs to. Latency is added where the cloud has it, before an answer can be fetched (`retrieve_future`): until then
a long poll ends with 408 `try_again`, as the service's own does.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import httpx
import uvicorn
import zstandard
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from tinker.proto import tinker_public_pb2 as pb

from benchmarks.rehearsal.faults import Fault

LONG_POLL_S = 20.0
NOT_PASSED = frozenset({"content-length", "transfer-encoding", "connection", "content-encoding", "date", "server"})
PROMISED = {
    "sample",
    "score",
    "forward_backward",
    "optim_step",
    "save_weights",
    "save_weights_for_sampler",
    "load_weights",
    "create_model",
}


@dataclass(frozen=True)
class Latency:
    """Seconds of a cloud: a step's sampling (its requests end between half of it and all of it), one score, a pass, a save."""

    sample_s: float
    score_s: float
    train_s: float
    save_s: float
    groups: int
    """Sampling requests of a step."""

    def of(self, route: str, number: int) -> float:
        """Until the answer to the n-th request of a route is there."""
        if route == "sample":
            return self.sample_s * (0.5 + 0.5 * (number % self.groups) / max(self.groups - 1, 1))
        return {"score": self.score_s, "forward_backward": self.train_s, "save_weights": self.save_s}.get(route, 0.0)


@dataclass
class Promised:
    """A request that the service accepted and whose answer is to be fetched."""

    route: str
    who: str
    ready_at: float
    samples: int
    owners: set[str]
    """Its sampler or trainer, and their session."""
    settled: bool = False
    """Its answer was fetched, or a fault took it."""


@dataclass
class Known:
    """What the proxy has seen."""

    steps: int = 0
    """Optimizer steps that the service took."""
    unsaved: Counter[str] = field(default_factory=Counter)
    """Trainer -> its optimizer steps since it was saved last."""
    promised: dict[str, Promised] = field(default_factory=dict)
    requests: Counter[str] = field(default_factory=Counter)


class Dropped(Response):
    """Begins an answer and closes the connection before its end."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1000")]})
        await send({"type": "http.response.body", "body": b"{", "more_body": True})


class Proxy:
    """Serves in a thread of this process while the block runs; `url` is where."""

    def __init__(self, upstream: str, latency: Latency, faults: list[Fault]) -> None:
        self.faults = faults
        self.known = Known()
        self._upstream = upstream
        self._latency = latency
        self._numbers: dict[str, itertools.count[int]] = {}
        app = Starlette(
            routes=[Route("/{path:path}", self._serve, methods=["GET", "POST", "PUT", "DELETE"])], lifespan=self._open
        )
        self._server = uvicorn.Server(
            uvicorn.Config(app, port=0, log_level="critical", access_log=False, timeout_keep_alive=120)
        )
        self._thread = threading.Thread(target=self._server.run, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        while not self._server.started:
            if not self._thread.is_alive():
                raise RuntimeError("the proxy did not start")
            time.sleep(0.01)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join()

    @property
    def url(self) -> str:
        host, port = self._server.servers[0].sockets[0].getsockname()[:2]
        return f"http://{host}:{port}"

    @asynccontextmanager
    async def _open(self, app: Starlette) -> AsyncIterator[None]:
        async with httpx.AsyncClient(
            base_url=self._upstream, timeout=None, limits=httpx.Limits(max_connections=None)
        ) as self._http:
            yield

    async def _serve(self, request: Request) -> Response:
        body = await request.body()
        said = read_body(request, body)
        route = self._route_of(request, said)
        self.known.requests[route] += 1
        for fault in self.faults:
            if (refused := await self._struck(fault, route, said, request, body)) is not None:
                return refused
        if route.startswith("answer of "):
            return await self._answer(request, body, self.known.promised[said["request_id"]])
        response = await self._pass(request, body)
        self._note(route, said, response)
        return response

    async def _struck(
        self, fault: Fault, route: str, said: dict[str, Any], request: Request, body: bytes
    ) -> Response | None:
        """What a fault does with a request: an answer of its own, or None to let it through."""
        if fault.victim is not None and fault.strike in ("session", "sampler", "trainer"):
            if fault.victim in named(said, fault.strike):
                return JSONResponse({"detail": WORDS[fault.strike]}, fault.status)
            return None
        if not fault.strikes(route, self.known.steps):
            return None
        if fault.strike == "weights" and not said.get("model_path"):
            return None  # the model as it was published has none
        fault.met.append(time.monotonic())
        fault.at_call = fault.at_call or f"{route} #{self.known.requests[route]}"
        promised = self.known.promised.get(said.get("request_id", ""))
        if fault.strike in ("status", "drop", "expire", "fail", "pause"):
            fault.owed.add(promised.who if promised else identity(said))
        match fault.strike:
            case "status":
                return JSONResponse(fault.body or {"detail": f"rehearsed {fault.status}"}, fault.status)
            case "drop":
                self._note(route, said, await self._pass(request, body), mends=False)
                return Dropped()
            case "pause":
                await asyncio.sleep(0.5)
                words = {
                    "type": "try_again",
                    "queue_state": "paused_capacity",
                    "queue_state_reason": "rehearsed: short on capacity",
                }
                return JSONResponse({**words, "request_id": said["request_id"]}, 408)
            case "slow" if promised is not None:
                promised.ready_at += self._latency.sample_s
            case "expire" | "fail" if promised is not None:
                fault.lost_samples += promised.samples
                promised.settled = True
                await self._pass(request, body)  # the service has done its work
                if fault.strike == "expire":
                    return JSONResponse({"detail": "promise expired"}, 410)
                return JSONResponse({"error": "rehearsed: a node was lost", "category": "server"})
            case "weights":
                run_id, kind, name = said["model_path"].removeprefix("tinker://").split("/")
                deleted = await self._http.delete(
                    f"/api/v1/training_runs/{run_id}/checkpoints/{kind}/{name}",
                    headers={"x-api-key": request.headers["x-api-key"]},
                )
                deleted.raise_for_status()
            case "session" | "sampler" | "trainer":
                (fault.victim,) = named(said, fault.strike)
                return JSONResponse({"detail": WORDS[fault.strike]}, fault.status)
        return None

    def _route_of(self, request: Request, said: dict[str, Any]) -> str:
        name = request.url.path.rsplit("/", 1)[-1]
        if name == "asample":
            return "score" if said.get("prompt_logprobs") else "sample"
        if name == "retrieve_future" and said.get("request_id") in self.known.promised:
            return f"answer of {self.known.promised[said['request_id']].route}"
        return name

    async def _answer(self, request: Request, body: bytes, promised: Promised) -> Response:
        """The answer to a request, once the cloud would have it; a long poll until then."""
        wait_s = promised.ready_at - time.monotonic()
        if wait_s > LONG_POLL_S:
            await asyncio.sleep(LONG_POLL_S)
            said = {"type": "try_again", "request_id": read_body(request, body)["request_id"], "queue_state": "active"}
            return JSONResponse(said, 408)
        await asyncio.sleep(max(wait_s, 0.0))
        response = await self._pass(request, body)
        if response.status_code == 200:
            promised.settled = True
            self._mended(f"answer of {promised.route}", promised.who)
        return response

    async def _pass(self, request: Request, body: bytes) -> Response:
        headers = [
            (name, value)
            for name, value in request.headers.raw
            if name not in (b"host", b"connection", b"accept-encoding")
        ]
        target = httpx.URL(path=request.url.path, query=request.url.query.encode())
        answer = await self._http.request(request.method, target, content=body, headers=headers)
        kept = {name: value for name, value in answer.headers.items() if name not in NOT_PASSED}
        return Response(answer.content, answer.status_code, kept)

    def _note(self, route: str, said: dict[str, Any], response: Response, mends: bool = True) -> None:
        """Learn from what the service accepted; `mends`: the one who asked will hear of it."""
        if response.status_code != 200:
            return
        who = identity(said)
        if route in PROMISED:
            request_id = json.loads(bytes(response.body))["request_id"]
            if request_id not in self.known.promised:  # otherwise sent again after its connection broke
                number = next(self._numbers.setdefault(route, itertools.count()))
                samples = said.get("num_samples", 0) if route == "sample" else 0
                ready_at = time.monotonic() + self._latency.of(route, number)
                owners = {name for kind in ("sampler", "trainer", "session") for name in named(said, kind)}
                self.known.promised[request_id] = Promised(route, who, ready_at, samples, owners)
                if route == "optim_step":
                    self.known.steps += 1
                    self.known.unsaved[said["model_id"]] += 1
                elif route == "save_weights":
                    self.known.unsaved[said["model_id"]] = 0
        if mends:
            self._mended(route, who)

    def _mended(self, route: str, who: str | None = None) -> None:
        """A request of a route was served: the faults that waited for it are over."""
        for fault in self.faults:
            fault.owed.discard(who or "")
            over = fault.met and time.monotonic() >= fault.met[0] + fault.lasts_s and len(fault.met) >= fault.times
            if over and fault.mended_at is None and fault.mended_by == route and not fault.owed:
                fault.mended_at = time.monotonic()


WORDS = {
    "session": "Invalid session_id",
    "sampler": "sampler expired",
    "trainer": "model not found",
}


def named(said: dict[str, Any], kind: str) -> set[str]:
    """The session, sampler or trainer that a request names; what it names of a session's names the session."""
    sampler, trainer = said.get("sampling_session_id"), said.get("model_id")
    if kind == "sampler":
        return {sampler} - {None}
    if kind == "trainer":
        return {trainer} - {None}
    owners = {name.split(":")[0] for name in (sampler, trainer) if name}
    return owners | ({said["session_id"]} if said.get("session_id") else set())


def identity(said: dict[str, Any]) -> str:
    """What makes a request the same one when it is made again: its prompt, or the trainer and its place in the trainer's order."""
    if "prompt" in said:
        return hashlib.sha256(json.dumps(said["prompt"]).encode()).hexdigest()
    return f"{said.get('model_id')} {said.get('seq_id')}"


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
