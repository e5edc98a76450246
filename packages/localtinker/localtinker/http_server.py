"""Sockets and server loop of this package's HTTP services."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING

import uvicorn

from localtinker.errors import SettingsError
from localtinker.settings import Announce

if TYPE_CHECKING:
    from starlette.types import ASGIApp

GRACE_S = 2
"""How long a server that is stopped waits for its open requests."""


def url_of(host: str, port: int) -> str:
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}"


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket without Nagle's delay, which would add 40 ms to every response. Raises
    SettingsError if that fails."""
    is_ipv6 = ":" in host
    family = socket.AF_INET6 if is_ipv6 else socket.AF_INET
    try:
        listener = socket.create_server(
            (host, port), family=family, backlog=1024, dualstack_ipv6=is_ipv6
        )
    except (OSError, OverflowError) as error:
        raise SettingsError(
            f"cannot listen on {host}:{port}: {error}",
            "choose another --port; 0 selects a free one",
        ) from error
    # Connections inherit it. asyncio sets it only on sockets with an explicit protocol.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def serve(app: ASGIApp, listener: socket.socket, announce: Announce) -> None:
    """Serve until a signal; open requests then have `GRACE_S` seconds. `announce` receives the URL: from then on a
    request is answered, the first ones when the application has started."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        timeout_keep_alive=120,
        timeout_graceful_shutdown=GRACE_S,
        lifespan="on",
    )
    server = uvicorn.Server(config)
    host, port = listener.getsockname()[:2]
    with contextlib.suppress(KeyboardInterrupt):
        announce(url_of(host, port))
        asyncio.run(server.serve(sockets=[listener]))
