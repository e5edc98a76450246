"""An engine for tests of the bridge that replays what SkyRL 0.4.0 answered.

`SKYRL_URL=http://HOST:PORT pytest packages/localtinker/tests/bridge/test_bridge_table.py` records the answers of a running
server in `recorded/`, a file a test. The files there are of SkyRL 0.4.0 as published, with JAX 0.12 on a CPU, the
shipped model `student` and `{"max_lora_adapters": 4, "max_lora_rank": 8}` (`benchmarks/skyrl.py`).
"""

import base64
import json
import os
import time
from pathlib import Path
from typing import Any

import httpx
from starlette.testclient import TestClient

from localtinker.bridge import capabilities
from localtinker.bridge.app import create_app
from localtinker.bridge.engines import API, Engine, _faces
from localtinker.bridge.state import Bridge, Limits
from localtinker.bridge.upstream import Upstream
from rtl_core.tinymodels import model_path

FOLDER = Path(__file__).parent / "recorded"
SKYRL = os.environ.get("SKYRL_URL")
KEY = "tml-test"
STUDENT = Limits.of(model_path("student"))


class Replay(httpx.AsyncBaseTransport):
    """Answers each request with the next recorded answer to the same call, or asks the running server and records."""

    def __init__(self, file: Path) -> None:
        self.file, self.exchanges, self.sent = file, [], []
        self.real = httpx.AsyncHTTPTransport() if SKYRL else None
        if not SKYRL:
            self.exchanges = json.loads(file.read_text())

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        call = f"{request.method} {request.url.raw_path.decode().removeprefix(API)}"
        body = await request.aread()
        is_json = request.headers["content-type"] == "application/json" and body
        self.sent.append((call, json.loads(body) if is_json else body))
        if self.real:
            response = await self.real.handle_async_request(request)
            content = await response.aread()
            self.exchanges.append(recorded(call, response, content))
            return httpx.Response(
                response.status_code, content=content, headers=kind_of(response)
            )
        place = next(i for i, one in enumerate(self.exchanges) if one["call"] == call)
        one = self.exchanges.pop(place)
        content = (
            json.dumps(one["json"]).encode()
            if "json" in one
            else base64.b64decode(one["base64"])
        )
        return httpx.Response(
            one["status"], content=content, headers={"content-type": one["kind"]}
        )

    def calls(self) -> list[str]:
        """Return the calls that reached the engine, without those that only wait or look."""
        return [
            call for call, _ in self.sent if call.startswith("POST") and "retrieve" not in call
        ]

    def save(self) -> None:
        if self.real:
            lines = ",\n".join(map(json.dumps, self.exchanges))
            self.file.write_text(f"[\n{lines}\n]\n")


def kind_of(response: httpx.Response) -> dict[str, str]:
    return {"content-type": response.headers.get("content-type", "")}


def recorded(call: str, response: httpx.Response, content: bytes) -> dict[str, Any]:
    one = {
        "call": call,
        "status": response.status_code,
        "kind": kind_of(response)["content-type"],
    }
    if "json" in one["kind"] and content:
        return {**one, "json": json.loads(content)}
    return {**one, "base64": base64.b64encode(content).decode()}


class Sdk:
    """Sends requests as the SDK does, to a bridge in this process."""

    def __init__(self, http: TestClient, engine: Replay) -> None:
        self.http, self.engine = http, engine
        self.session = ""

    def ask(self, call: str, **body: Any) -> httpx.Response:
        method, path = call.split()
        return self.http.request(
            method, API + path, json=body or None, headers={"X-API-Key": KEY}
        )

    def post(self, route: str, **body: Any) -> dict[str, Any]:
        response = self.ask(f"POST {route}", **body)
        assert response.status_code == 200, response.text
        return response.json()

    def wait(self, promise: str) -> httpx.Response:
        """Ask for a result until it is there."""
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            response = self.ask("POST /retrieve_future", request_id=promise)
            if response.status_code != 408:
                return response
        raise AssertionError(f"no result of {promise}")

    def done(self, route: str, **body: Any) -> dict[str, Any]:
        response = self.wait(self.post(route, **body)["request_id"])
        assert response.status_code == 200, response.text
        return response.json()

    def open(self, number: int = 0, rank: int = 8) -> str:
        """Open a session and a training client. Returns its id."""
        self.session = (
            self.session
            or self.post(
                "/create_session", tags=[], sdk_version="0.38.0", type="create_session"
            )["session_id"]
        )
        asked = {
            "session_id": self.session,
            "base_model": "student",
            "lora_config": {"rank": rank, "seed": 1},
        }
        return self.done("/create_model", model_seq_id=number, **asked)["model_id"]

    def save_sampler(self, model: str, name: str, number: int) -> str:
        return self.done("/save_weights_for_sampler", model_id=model, path=name, seq_id=number)[
            "path"
        ]


def skyrl() -> Engine:
    """Return the engine that `recognise` returns for the recorded server."""
    fields = _faces()["Tinker API Mock"]["routes"]
    return Engine(
        "skyrl", "0.4.0", "jax", capabilities.lacks("skyrl", "jax"), ("student",), fields
    )


def connected(file: Path, engine: Engine, *, limits: bool = True) -> tuple[TestClient, Replay]:
    """Return a client of a bridge to the recorded engine, and the engine."""
    replay = Replay(file)
    upstream = Upstream(SKYRL or "http://engine", engine, None, replay)
    bridge = Bridge(engine, upstream, {"student": STUDENT} if limits else {}, KEY)
    return TestClient(create_app(bridge)), replay
