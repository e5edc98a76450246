"""Sockets and server loop of this product's HTTP services."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

import uvicorn

from rtl_grader.errors import ConfigError

if TYPE_CHECKING:
    from starlette.types import ASGIApp


def is_loopback(host: str) -> bool:
    """Whether an address is reachable only from this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def url_of(host: str, port: int) -> str:
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}"


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket without Nagle's delay, which would add 40 ms to every response. Raises
    ConfigError if that fails."""
    is_ipv6 = ":" in host
    family = socket.AF_INET6 if is_ipv6 else socket.AF_INET
    try:
        listener = socket.create_server(
            (host, port), family=family, backlog=1024, dualstack_ipv6=is_ipv6
        )
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"cannot listen on {host}:{port}: {error}",
            "choose another --port; 0 selects a free one",
        ) from error
    # Connections inherit it. asyncio sets it only on sockets with an explicit protocol.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


async def serve(
    app: ASGIApp, listener: socket.socket, announce: Callable[[str], None], grace_s: int
) -> None:
    """Serve until a signal; open requests then have `grace_s` seconds. `announce` receives the URL, at which
    requests are answered from then on."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        timeout_keep_alive=120,
        timeout_graceful_shutdown=grace_s,
        lifespan="off",
    )
    host, port = listener.getsockname()[:2]
    announce(url_of(host, port))
    await uvicorn.Server(config).serve(sockets=[listener])
