"""The foreground service `serve-grader`."""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rtl_grader.cli.options import ExecutorOption, JobsOption, SourceOption, TimeoutOption
from rtl_grader.errors import ConfigError

if TYPE_CHECKING:
    from rtl_grader.serving.grading_queue import GradingQueue

GRADER_TOKEN = "RTL_DISTILL_GRADER_TOKEN"
OutputOption = Annotated[
    Path, typer.Option(help="File of verdict records, one per line; reused after a restart.")
]
HostOption = Annotated[
    str,
    typer.Option(
        help=f"Address to listen on; an address other than loopback requires {GRADER_TOKEN}."
    ),
]
PortOption = Annotated[int, typer.Option(help="Port; 0 picks a free one.")]
QueueOption = Annotated[
    int,
    typer.Option(
        min=1, help="Maximum queued and running gradings; further requests get status 429."
    ),
]


def serve_grader(
    source: SourceOption = None,
    executor: ExecutorOption = "bubblewrap",
    timeout: TimeoutOption = 60.0,
    jobs: JobsOption = 0,
    output: OutputOption = Path("grader.jsonl"),
    host: HostOption = "127.0.0.1",
    port: PortOption = 0,
    queue: QueueOption = 2048,
) -> None:
    """Grade answers over HTTP until Ctrl-C or SIGTERM.

    Prints two environment variables for the client; if the second one, the token, is already set, its value
    is used. Each answer is graded once: a repeated request, even after a restart, returns the stored
    record. `/docs` describes the requests.

    Example:

        rtl-grader serve-grader --source rtllm=../RTLLM --port 8200
    """
    from contextlib import closing

    from rtl_grader.cli.problems import load
    from rtl_grader.http_server import listen
    from rtl_grader.serving.grading_queue import open_queue
    from rtl_grader.settings import GradingSection

    token = token_for(host)
    settings = GradingSection(executor=executor, workers=jobs, timeout_s=timeout, cpu_s=timeout)
    # First, so that a port in use is reported at once and early clients wait.
    with (
        closing(listen(host, port)) as listener,
        open_queue(load(source).every, settings, None, output, queue) as grading,
    ):
        serve_queue(grading, listener, token)


def token_for(host: str) -> str:
    """Return the token that clients need: that of the environment, or a new one. Raises ConfigError if
    other machines need one."""
    from rtl_grader.http_server import is_loopback

    token = os.environ.get(GRADER_TOKEN)
    if not token and not is_loopback(host):
        raise ConfigError(
            f"--host {host} is reachable from other machines, so a token is required",
            f"set {GRADER_TOKEN}",
        )
    return token or secrets.token_hex(16)


def serve_queue(grading: GradingQueue, listener: socket.socket, token: str) -> None:
    """Serve a queue until a signal, and print the client's environment variables once it answers."""
    import asyncio

    from rtl_grader.http_server import serve
    from rtl_grader.serving.app import create_app

    def announce(address: str) -> None:
        typer.echo(f"export RTL_DISTILL_GRADER_URL={address}\nexport {GRADER_TOKEN}={token}")

    asyncio.run(serve(create_app(grading, token), listener, announce, grace_s=10))
