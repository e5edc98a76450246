"""Services in the foreground: `rtl-distill serve-tinker`, the embedded Tinker service, and `serve-grader`."""

from __future__ import annotations

import os
import secrets
import tempfile
from pathlib import Path
from typing import Annotated, Literal

import typer

from rtl_core.errors import ConfigError
from rtl_distill.cli.arguments import ConfigArgument, SetOption, SourceOption

GRADER_TOKEN = "RTL_DISTILL_GRADER_TOKEN"


def serve_tinker(
    model: Annotated[list[str], typer.Option("--model", help="A transformers folder, PATH or NAME=PATH; repeatable.")],
    state: Annotated[
        Path | None, typer.Option(help="Folder for checkpoints and the registry [default: a new temporary one].")
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; other than loopback needs TINKER_API_KEY.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.")] = 0,
    dtype: Annotated[
        Literal["float32", "bfloat16"], typer.Option(help="Of the frozen weights, and of what is computed from them.")
    ] = "float32",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "cpu",
    threads: Annotated[int, typer.Option(help="Threads of torch on the CPU.")] = min(2, os.cpu_count() or 1),
    sampling_processes: Annotated[
        int | None,
        typer.Option(
            min=0, help="Processes that sample small models on the CPU; 0 for none.", show_default="as many as threads"
        ),
    ] = None,
    max_context: Annotated[int, typer.Option(help="Longest sequence served, in tokens.")] = 32768,
    idle_seconds: Annotated[float, typer.Option(help="Training clients unused for so long move to disk.")] = 1800.0,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="The same seed and prompt give the same sample, whatever else runs.")
    ] = False,
) -> None:
    """Serve base models over Tinker's protocol on this machine, for the unmodified `tinker` SDK.

    Prints the two environment variables that a client needs, then serves until Ctrl-C.

    Examples:

        rtl-distill serve-tinker --model student=models/student --model teacher=models/teacher --state ./tinker-state

        rtl-distill serve-tinker --model ~/models/Qwen3-1.7B --device cuda --dtype bfloat16
    """
    from rtl_core.localtinker.__main__ import serve
    from rtl_core.localtinker.settings import Settings, check_exposure, check_models, parse_model

    models = dict(map(parse_model, model))
    check_models(models)
    given = os.environ.get("TINKER_API_KEY") or None
    check_exposure(host, given)
    key = given or f"tml-local-{secrets.token_hex(16)}"

    def announce(base_url: str) -> None:
        typer.echo(f"export TINKER_BASE_URL={base_url}")
        typer.echo(f"export TINKER_API_KEY={key}")

    folder = state if state is not None else Path(tempfile.mkdtemp(prefix="rtl-distill-tinker-"))
    settings = Settings(
        models=models, state=folder, host=host, port=port, dtype=dtype, device=device, threads=threads,
        sampling_processes=sampling_processes, max_context=max_context, deterministic=deterministic, idle_s=idle_seconds,
    )  # fmt: skip
    serve(settings, key, announce)


def serve_grader(
    config: ConfigArgument = "demo",
    source: SourceOption = None,
    set_: SetOption = None,
    output: Annotated[
        Path, typer.Option(help="Where verdicts are kept, one record a line; a new start goes on with it.")
    ] = Path("runs/grader.jsonl"),
    host: Annotated[
        str, typer.Option(help=f"Address to listen on; other than loopback needs {GRADER_TOKEN}.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.")] = 0,
    queue: Annotated[
        int, typer.Option(min=1, help="Answers that may wait or be graded; more are answered 429.")
    ] = 2048,
) -> None:
    """Grade answers over HTTP, under the section `grading` of a configuration, until Ctrl-C or SIGTERM.

    Prints two environment variables for the client. The token is taken from the second one, where it is set. An answer is graded
    once: asking again, also after a restart, gives the stored record. `/docs` describes the requests.

    Examples:

        rtl-distill serve-grader --source starter --source rtllm=../RTLLM --port 8200

        rtl-distill serve-grader cvdp --set grading.workers=dask://10.0.0.5:8786 --host 0.0.0.0 --port 8200
    """
    import asyncio
    from contextlib import closing

    from rtl_core.config import load_config
    from rtl_core.http_server import is_loopback, listen, serve
    from rtl_core.problems.sources import override_of
    from rtl_core.serving.app import create_app
    from rtl_core.serving.grading_queue import open_queue
    from rtl_distill.tasks.cluster import cluster_of

    token = os.environ.get(GRADER_TOKEN)
    if not token and not is_loopback(host):
        raise ConfigError(
            f"--host {host} is reachable from other machines, so a token is required", f"set {GRADER_TOKEN}"
        )
    token = token or secrets.token_hex(16)
    settings = load_config(config, [*([override_of(source)] if source else []), *(set_ or [])])

    def announce(address: str) -> None:
        typer.echo(f"export RTL_DISTILL_GRADER_URL={address}\nexport {GRADER_TOKEN}={token}")

    with (
        closing(listen(host, port)) as listener,
        cluster_of(settings) as cluster,
        open_queue(settings, cluster, output, queue) as grading,
    ):
        asyncio.run(serve(create_app(grading, token), listener, announce, grace_s=10))
