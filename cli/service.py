"""Foreground services: `serve-tinker` (the embedded Tinker service) and `serve-grader`; `check-service` tests any Tinker server."""

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
    model: Annotated[
        list[str], typer.Option("--model", help="A transformers folder, PATH or NAME=PATH. May be repeated.")
    ],
    state: Annotated[
        Path | None, typer.Option(help="Folder for checkpoints and the registry [default: a new temporary one].")
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; an address other than loopback requires TINKER_API_KEY.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 picks a free one.")] = 0,
    dtype: Annotated[
        Literal["float32", "bfloat16"], typer.Option(help="Data type of the frozen weights and of computations.")
    ] = "float32",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "cpu",
    threads: Annotated[int, typer.Option(min=1, help="Torch threads on the CPU.")] = min(2, os.cpu_count() or 1),
    sampling_processes: Annotated[
        int | None,
        typer.Option(
            min=0, help="Processes that sample small models on the CPU; 0 for none.", show_default="as many as threads"
        ),
    ] = None,
    max_context: Annotated[int, typer.Option(min=1, help="Maximum sequence length, in tokens.")] = 32768,
    idle_seconds: Annotated[float, typer.Option(help="Move idle training clients to disk after this time.")] = 1800.0,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Give the same sample for the same seed and prompt, under any load.")
    ] = False,
) -> None:
    """Serve base models on this machine over Tinker's protocol, for the unmodified `tinker` SDK.

    Prints the two environment variables that a client needs, then serves until Ctrl-C.

    Examples:

        rtl-distill serve-tinker --model student=models/student --model teacher=models/teacher --state ./tinker-state

        rtl-distill serve-tinker --model ~/models/Qwen3-1.7B --device cuda --dtype bfloat16
    """
    from rtl_core.localtinker.__main__ import serve
    from rtl_core.localtinker.settings import Settings, check_exposure, check_models, parse_models

    models = parse_models(model)
    check_models(models)
    key = os.environ.get("TINKER_API_KEY") or None
    check_exposure(host, key)
    key = key or f"tml-local-{secrets.token_hex(16)}"

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
    output: Annotated[Path, typer.Option(help="File of verdict records, one per line; reused after a restart.")] = Path(
        "runs/grader.jsonl"
    ),
    host: Annotated[
        str, typer.Option(help=f"Address to listen on; an address other than loopback requires {GRADER_TOKEN}.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 picks a free one.")] = 0,
    queue: Annotated[
        int, typer.Option(min=1, help="Maximum queued and running gradings; further requests get status 429.")
    ] = 2048,
) -> None:
    """Grade answers over HTTP with the `grading` settings of a configuration, until Ctrl-C or SIGTERM.

    Prints two environment variables for the client; if the second one, the token, is already set, its value is used. Each answer is
    graded once: a repeated request, even after a restart, returns the stored record. `/docs` describes the requests.

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


MODEL = typer.Option(
    "--model", metavar="NAME=FOLDER", help="Folder of a served model, to compare with transformers. May be repeated."
)
STUDENT = typer.Option(help="Model to train.", show_default="the first --model, else the first trainable served model")
ONLY = typer.Option("--only", metavar="CASE", help="Run only this case or group and what it needs. May be repeated.")
TOLERANCE = typer.Option(
    min=0.0,
    help="Allowed mean difference of equal log-probabilities, in nats; a single one may differ ten times as much.",
)
AS_JSON = typer.Option("--json", metavar="FILE", help="Also write the results to FILE.")


def check_service(
    url: Annotated[str, typer.Argument(help="URL of the server, as in TINKER_BASE_URL: http://HOST:PORT.")],
    model: Annotated[list[str] | None, MODEL] = None,
    student: Annotated[str | None, STUDENT] = None,
    only: Annotated[list[str] | None, ONLY] = None,
    rank: Annotated[int, typer.Option(min=1, help="Rank of the adapters.")] = 8,
    tolerance: Annotated[float, TOLERANCE] = 0.02,
    timeout: Annotated[float, typer.Option(min=1, help="Timeout of a case, in seconds.")] = 300.0,
    minutes: Annotated[float, typer.Option(min=0.1, help="Timeout of all cases together, in minutes.")] = 60.0,
    as_json: Annotated[Path | None, AS_JSON] = None,
) -> None:
    """Certify a server: test everything that a run needs from Tinker's protocol, and report what a run could not do on it.

    About fifty cases cover the SDK's calls, saved weights, consistent arithmetic, and the responses to invalid requests. With the folder of
    a served model (`--model`), its log-probabilities, the gradient of each loss and an AdamW step are compared with transformers and torch.
    The cases train tiny adapters, sample a few thousand tokens in total, and delete what they save. The API key is TINKER_API_KEY.

    Exit code: 0 when everything that every run needs works (missing options are listed), 1 when something is missing or differs,
    2 when there is no key or an argument is invalid.

    Examples:

        rtl-distill check-service http://127.0.0.1:10610

        rtl-distill check-service http://gpu7:8000 --model Qwen/Qwen3-8B=models/Qwen3-8B --json gpu7.json

        rtl-distill check-service http://gpu7:8000 --only resume --only faults --timeout 900
    """
    import logging
    import warnings

    from rich.console import Console

    os.environ.setdefault("TINKER_TELEMETRY", "0")  # read when the SDK is imported
    from transformers.utils.logging import disable_progress_bar

    from rtl_core.backend.certify.bench import Server
    from rtl_core.backend.certify.examiner import examine
    from rtl_core.localtinker.settings import check_models, parse_models
    from rtl_distill.cli.console import quiet

    folders = parse_models(model or [])
    check_models(folders)
    server = Server(url, student=student, folders=folders, rank=rank, tolerance=tolerance)
    disable_progress_bar()
    # The results have a line for everything that these loggers warn about.
    with quiet(logging.CRITICAL, "tinker", "huggingface_hub"), warnings.catch_warnings(action="ignore"):
        found = examine(server, only or [], case_s=timeout, whole_s=60 * minutes, console=Console())
    found.show(Console())  # first: a file that cannot be written must not cost the results
    if as_json is not None:
        found.write(as_json)
    if not found.fit:
        raise typer.Exit(1)
