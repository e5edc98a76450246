"""The bridge when something is broken: its engine, its key, its own process, or what answers at the engine's address."""

import asyncio
import json
import os
import signal
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import tinker
from bridge_recorded import KEY, Response, Sdk, skyrl
from starlette.testclient import TestClient

from benchmarks.bridge import instant_engine
from benchmarks.instant_engine import openapi
from localtinker.bridge import promises, recognise
from localtinker.bridge.app import create_app
from localtinker.bridge.engines import EngineError, OtherVersionError, _faces
from localtinker.bridge.state import Bridge as BridgeState
from localtinker.bridge.upstream import Upstream
from localtinker.errors import RequestError, StartError
from localtinker.process import Bridge, KeptBridge
from localtinker.settings import API
from tests.waiting import wait_for

SAYS = _faces()["Tinker API Mock"]["says"]
HTML = ("text/html", b"<html>gateway</html>")


class Engine:
    """Answers each request with `answer()`."""

    def __init__(self, answer):
        self.answer = answer

    async def execute(self, *request):
        return self.answer()


@contextmanager
def bridged(answer):
    """Yield a client of a bridge to an engine that answers each request so."""
    engine = skyrl()
    upstream = Upstream("http://engine", None, Engine(answer))
    with TestClient(create_app(BridgeState(engine, upstream, {}, KEY))) as http:
        yield Sdk(http, None)


def nobody():
    raise ConnectionError("connection refused")


def failing(status, detail):
    content = json.dumps({"detail": detail}).encode()
    return lambda: Response(status, content, {"content-type": "application/json"})


def test_without_the_key_nothing_is_answered():
    with bridged(nobody) as sdk:
        for key in ("", "tml-other"):
            refused = sdk.http.get(f"{API}/local/engine", headers={"X-API-Key": key})
            assert refused.status_code == 401
            assert "this bridge's key" in refused.json()["detail"]


def test_while_the_engine_is_silent_requests_are_sent_again(monkeypatch):
    monkeypatch.setattr(promises, "PAUSE_S", 0.0)
    with bridged(nobody) as sdk:
        refused = sdk.ask("POST /create_session", tags=[])
        assert refused.status_code == 503
        assert "http://engine does not answer (connection refused)" in refused.json()["detail"]
        waiting = sdk.ask("POST /retrieve_future", request_id="t.1")
        assert waiting.status_code == 408
        assert waiting.json()["type"] == "try_again"
        assert "has not answered for" in waiting.json()["queue_state_reason"]


def test_a_result_is_not_waited_for_without_end(monkeypatch):
    monkeypatch.setattr(promises, "OUTAGE_S", -1.0)
    with bridged(nobody) as sdk:
        failed = sdk.ask("POST /retrieve_future", request_id="t.1").json()
    assert failed["category"] == "server"
    assert "has not answered for" in failed["error"]


@pytest.mark.parametrize("status", [409, 425, 500, 502])
def test_a_lasting_refusal_is_not_sent_again(status):
    with bridged(failing(status, "so it is")) as sdk:
        refused = sdk.ask("POST /create_session", tags=[])
    assert (refused.status_code, refused.json()["detail"]) == (400, "so it is")


def test_a_client_that_the_engine_lost_is_gone():
    with bridged(failing(400, "Model model_1 not loaded")) as sdk:
        gone = sdk.ask("POST /retrieve_future", request_id="f.1")
    assert gone.status_code == 404
    assert "open the client again" in gone.json()["detail"]


def test_a_client_of_an_earlier_bridge_is_gone():
    with bridged(nobody) as sdk:
        for model in ("model_1", "session_1:train:0"):
            gone = sdk.ask("POST /optim_step", model_id=model, adam_params={})
            assert gone.status_code == 404
            assert "open it from its last saved state" in gone.json()["detail"]


@contextmanager
def pages(**by_path):
    """Serve pages by the last word of their path: (content type, body)."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            page = by_path.get(self.path.rpartition("/")[2].partition(".")[0])
            kind, body = page or ("application/json", b'{"detail": "Not Found"}')
            self.send_response(200 if page else 404)
            self.send_header("content-type", kind)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            """Write no log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def described(says):
    return ("application/json", json.dumps(openapi(says)).encode())


@pytest.mark.parametrize(
    ("served", "kind", "words"),
    [
        ({"openapi": HTML}, EngineError, "text/html, not as a Tinker server"),
        ({"healthz": HTML}, EngineError, "text/html, not as a Tinker server"),
        (
            {"openapi": described([*SAYS, "SampleRequest prompt prompt_logprobs_last_n"])},
            OtherVersionError,
            "another version than 0.4.0: it differs in SampleRequest",
        ),
        ({"openapi": described([*SAYS, "/new"])}, OtherVersionError, "it differs in /new"),
    ],
)
def test_what_is_no_known_engine_is_refused_by_name(served, kind, words):
    with pages(**served) as url, pytest.raises(kind, match=words) as refused:
        recognise(url)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://127.0.0.1:1", "cannot be reached"),
        ("127.0.0.1:8000", "cannot be reached"),
        ("https://tinker.thinkingmachines.dev/services/tinker-prod", "is Tinker's cloud"),
    ],
)
def test_an_address_without_an_engine_is_refused_by_name(url, words):
    with pytest.raises(EngineError, match=words):
        recognise(url)


def test_a_server_of_the_sdks_own_version_needs_no_bridge(tmp_path):
    with pages(healthz=("application/json", b'{"status": "ok"}')) as url:
        assert recognise(url) is None
        with pytest.raises(StartError, match="needs no bridge"):
            Bridge(url, tmp_path / "bridge.log")


def test_a_killed_bridge_comes_back_with_its_address_and_key(tmp_path):
    told = []
    with (
        instant_engine() as url,
        KeptBridge(url, tmp_path / "bridge.log", on_restart=told.append) as bridge,
    ):
        before = (bridge.base_url, bridge.api_key)
        with tinker.ServiceClient(base_url=bridge.base_url, api_key=bridge.api_key) as service:
            trainer = service.create_lora_training_client("student", rank=8).result()
            os.kill(bridge.pid, signal.SIGKILL)
            wait_for(lambda: told, "a restart")
            assert told == ["the bridge to the engine had ended and was restarted"]
            assert (bridge.base_url, bridge.api_key) == before
            # A client whose id is the engine's own goes on.
            saved = trainer.save_weights_for_sampler("after").result()
            assert saved.path == "tinker://model_1/sampler_weights/after"


def test_a_request_that_comes_again_before_its_answer_is_sent_once():
    state = BridgeState(skyrl(), Upstream("http://engine", None, Engine(None)), {}, KEY)
    sent: list[str] = []

    async def asked(answer: str, *, fails: bool = False):
        sent.append(answer)
        await asyncio.sleep(0)
        if fails:
            raise RequestError("the engine refused")
        return {"request_id": answer}

    async def twice():
        again = (state.once(("m", 1), lambda: asked("a")) for _ in range(2))
        assert await asyncio.gather(*again) == [{"request_id": "a"}] * 2
        with pytest.raises(RequestError):
            await state.once(("m", 2), lambda: asked("b", fails=True))
        assert await state.once(("m", 2), lambda: asked("c")) == {"request_id": "c"}

    asyncio.run(twice())
    assert sent == ["a", "b", "c"]
