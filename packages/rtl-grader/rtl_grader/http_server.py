"""Sockets and server loop of this product's HTTP services."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rtl_grader.errors import ConfigError

if TYPE_CHECKING:
    from starlette.types import ASGIApp


def is_loopback(host: str) -> bool:
    """Whether an address is reachable only from this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket without Nagle's delay, which would add 40 ms to every response. Raises
    ConfigError if that fails."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only on sockets with an explicit protocol.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        raise ConfigError(
            f"cannot listen on {host}:{port}: {error}",
            "choose another --port; 0 selects a free one",
        ) from error
    listener.listen(1024)
    return listener


async def serve(
    app: ASGIApp,
    listener: socket.socket,
    announce: Callable[[str], None],
    grace_s: int,
) -> None:
    """Serve until a signal; open requests then have `grace_s` seconds. `announce` receives the URL once the
    server is ready."""
    import uvicorn

    config: Any = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        timeout_keep_alive=120,
        timeout_graceful_shutdown=grace_s,
        lifespan="off",
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.005)
    host, port = listener.getsockname()[:2]
    announce(f"http://{host}:{port}")
    await serving
