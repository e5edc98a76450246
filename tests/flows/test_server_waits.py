"""A Prefect server that is busy for a while costs a run time and a line, and no traceback."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from prefect.client.base import PrefectHttpxAsyncClient

from rtl_core.errors import InfrastructureError
from rtl_core.run.faults import is_transient
from rtl_distill.cli.flow import run_flow
from rtl_distill.tasks.server_waits import server_waits_told


class Busy(BaseHTTPRequestHandler):
    refusals = 0
    """How many requests are refused before one is served."""

    def do_GET(self) -> None:
        busy = Busy.refusals > 0
        Busy.refusals -= busy
        self.send_response(503 if busy else 200)
        self.send_header("Retry-After", "0")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Busy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


async def ask(url: str) -> int:
    async with PrefectHttpxAsyncClient(base_url=url) as client:
        return (await client.get("/")).status_code


@pytest.mark.parametrize(("refusals", "lines"), [(1, 0), (4, 1)])
def test_a_server_that_is_busy_for_long_is_told_of_once_a_minute(url: str, refusals: int, lines: int) -> None:
    told: list[str] = []
    Busy.refusals = refusals
    client = logging.getLogger("prefect.client")
    before = client.level, list(client.filters)
    with server_waits_told(told.append):
        assert asyncio.run(ask(url)) == 200
    assert len(told) == lines
    assert all("waiting for Prefect's server" in line and "503" in line for line in told)
    assert (client.level, list(client.filters)) == before


def test_one_that_stays_busy_ends_the_command_in_a_sentence_and_the_run_can_go_on(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", url)
    Busy.refusals = 1000
    with pytest.raises(InfrastructureError, match=r"Prefect's server .* fails: .*503") as caught:
        run_flow(f"{__name__}:ask", url, title="ask")
    assert isinstance(caught.value.__cause__, httpx.HTTPStatusError)
    assert is_transient(caught.value.__cause__)
    assert "goes on" in (caught.value.hint or "")
