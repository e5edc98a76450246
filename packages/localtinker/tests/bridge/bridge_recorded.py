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
from typing import Any, NamedTuple

import httpx
import pyqwest
from starlette.testclient import TestClient

from localtinker.bridge import capabilities
from localtinker.bridge.app import create_app
from localtinker.bridge.engines import Engine
from localtinker.bridge.state import Bridge, Limits
from localtinker.bridge.upstream import Upstream
from localtinker.settings import API
from rtl_core.tinymodels import model_path

FOLDER = Path(__file__).parent / "recorded"
SKYRL = os.environ.get("SKYRL_URL")
KEY = "tml-test"
STUDENT = Limits.of("student", model_path("student"))


class Response(NamedTuple):
    """What the bridge reads of an answer, as of the client of a real engine."""

    status: int
    content: bytes
    headers: dict[str, str]


class Replay:
    """Answers each request with the next recorded answer to the same call, or asks the running server and records."""

    def __init__(self, file: Path) -> None:
        self.file, self.exchanges, self.sent = file, [], []
        self.real = pyqwest.Client() if SKYRL else None
        if not SKYRL:
            self.exchanges = json.loads(file.read_text())

    async def execute(
        self, method: str, url: str, headers: dict[str, str], body: bytes
    ) -> Response:
        call = f"{method} {url.partition(API)[2]}"
        is_json = headers["content-type"] == "application/json" and body
        self.sent.append((call, json.loads(body) if is_json else body))
        if self.real:
            got = await self.real.execute(method, url, headers, body)
            self.exchanges.append(recorded(call, got))
            return got
        place = next(i for i, one in enumerate(self.exchanges) if one["call"] == call)
        one = self.exchanges.pop(place)
        content = base64.b64decode(one.get("base64", ""))
        if "json" in one:
            content = json.dumps(one["json"]).encode()
        return Response(one["status"], content, {"content-type": one["kind"]})

    def calls(self) -> list[str]:
        """Return the calls that reached the engine, without those that only wait or look."""
        return [
            call for call, _ in self.sent if call.startswith("POST") and "retrieve" not in call
        ]

    def save(self) -> None:
        if self.real:
            lines = ",\n".join(map(json.dumps, self.exchanges))
            self.file.write_text(f"[\n{lines}\n]\n")


def recorded(call: str, got: Any) -> dict[str, Any]:
    kind = got.headers.get("content-type", "")
    one = {"call": call, "status": got.status, "kind": kind}
    if "json" in kind and got.content:
        return {**one, "json": json.loads(got.content)}
    return {**one, "base64": base64.b64encode(got.content).decode()}


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
            "lora_config": {"rank": rank, "seed": 0},
        }
        return self.done("/create_model", model_seq_id=number, **asked)["model_id"]

    def save_sampler(self, model: str, name: str, number: int) -> str:
        return self.done("/save_weights_for_sampler", model_id=model, path=name, seq_id=number)[
            "path"
        ]


def skyrl() -> Engine:
    """Return the engine that `recognise` returns for the recorded server."""
    return Engine("skyrl", "0.4.0", "jax", capabilities.lacks("skyrl", "jax"), ("student",))


def connected(file: Path, engine: Engine, *, limits: bool = True) -> tuple[TestClient, Replay]:
    """Return a client of a bridge to the recorded engine, and the engine."""
    replay = Replay(file)
    upstream = Upstream(SKYRL or "http://engine", None, replay)
    bridge = Bridge(engine, upstream, {"student": STUDENT} if limits else {}, KEY)
    return TestClient(create_app(bridge)), replay
