"""A configured proxy is not asked for this machine."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx
import pytest

from rtl_distill.operations.loopback import past_proxy

PROXY = {"HTTP_PROXY": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"}
"""A port where nothing answers."""


@pytest.fixture
def server():
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as listening:
        threading.Thread(target=listening.handle_request, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_port}"


def test_a_request_to_this_machine_bypasses_the_proxy(server, monkeypatch):
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name, value in PROXY.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(httpx.ConnectError):
        httpx.get(server)
    for name, value in past_proxy(PROXY).items():
        monkeypatch.setenv(name, value)
    assert httpx.get(server).status_code == 501  # it knows no GET


@pytest.mark.parametrize("name", ["NO_PROXY", "no_proxy"])
def test_hosts_that_already_bypass_the_proxy_still_do(name):
    hosts = "intranet,.corp,127.0.0.1,localhost"
    assert past_proxy({name: "intranet,.corp"}) == {"no_proxy": hosts, "NO_PROXY": hosts}
    assert past_proxy({name: hosts})["no_proxy"] == hosts
    assert past_proxy({name: "*"})["no_proxy"] == "*"
