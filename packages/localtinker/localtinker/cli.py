"""The console script `localtinker`: `serve-tinker` serves models, `bridge` translates for an engine, `check-service`
tests any Tinker server."""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from localtinker.errors import LocalTinkerError

if TYPE_CHECKING:
    from localtinker.settings import Announce

app = typer.Typer(
    name="localtinker",
    help="Tinker's protocol on this machine: serve models with it, and test servers of it.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
    pretty_exceptions_enable=False,
)


HOST = typer.Option(
    help="Address to listen on; an address other than loopback requires TINKER_API_KEY."
)
PORT = typer.Option(help="Port; 0 picks a free one.")
FOLDER = typer.Option(
    "--model",
    metavar="NAME=FOLDER",
    help="Folder of the served model: tells its vocabulary, context and tokenizer, which the engine does not.",
)


@app.command("serve-tinker")
def serve_tinker(
    model: Annotated[
        list[str],
        typer.Option(
            "--model", help="A transformers folder, PATH or NAME=PATH. May be repeated."
        ),
    ],
    state: Annotated[
        Path | None,
        typer.Option(
            help="Folder for checkpoints and the registry [default: a new temporary one]."
        ),
    ] = None,
    host: Annotated[str, HOST] = "127.0.0.1",
    port: Annotated[int, PORT] = 0,
    dtype: Annotated[
        Literal["float32", "bfloat16"],
        typer.Option(help="Data type of the frozen weights and of computations."),
    ] = "float32",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "cpu",
    threads: Annotated[int, typer.Option(min=1, help="Torch threads on the CPU.")] = min(
        2, os.cpu_count() or 1
    ),
    sampling_processes: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Processes that sample small models on the CPU; 0 for none.",
            show_default="as many as threads",
        ),
    ] = None,
    max_context: Annotated[
        int, typer.Option(min=1, help="Maximum sequence length, in tokens.")
    ] = 32768,
    idle_seconds: Annotated[
        float, typer.Option(help="Move idle training clients to disk after this time.")
    ] = 1800.0,
    deterministic: Annotated[
        bool,
        typer.Option(
            "--deterministic",
            help="Give the same sample for the same seed and prompt, under any load.",
        ),
    ] = False,
) -> None:
    """Serve base models on this machine over Tinker's protocol, for the unmodified `tinker` SDK.

    Prints the two environment variables that a client needs, then serves until Ctrl-C.

    Examples:

        localtinker serve-tinker --model student=models/student --model teacher=models/teacher --state ./tinker-state

        localtinker serve-tinker --model ~/models/Qwen3-1.7B --device cuda --dtype bfloat16
    """
    from localtinker.__main__ import serve
    from localtinker.settings import Settings, parse_models

    models = parse_models(model)
    key = key_for(host)
    if state is None:
        state = Path(tempfile.mkdtemp(prefix="localtinker-"))
    settings = Settings(
        models=models,
        state=state,
        host=host,
        port=port,
        dtype=dtype,
        device=device,
        threads=threads,
        sampling_processes=sampling_processes,
        max_context=max_context,
        deterministic=deterministic,
        idle_s=idle_seconds,
    )
    serve(settings, key, announcer(key))


@app.command("bridge")
def bridge(
    url: Annotated[str, typer.Argument(help="URL of the engine: http://HOST:8000.")],
    model: Annotated[list[str] | None, FOLDER] = None,
    host: Annotated[str, HOST] = "127.0.0.1",
    port: Annotated[int, PORT] = 0,
) -> None:
    """Translate between the SDK and an engine that was written for SDK 0.25: SkyRL 0.4.0 or TuFT.

    Prints the two environment variables that a client needs, then serves until Ctrl-C. The engine's own key, if it
    has one, is TINKER_UPSTREAM_API_KEY. A run whose `tinker.base_url` is an engine starts its bridge itself.

    Examples:

        localtinker bridge http://gpu7:8000

        localtinker bridge http://gpu7:8000 --model Qwen/Qwen3-8B=models/Qwen3-8B
    """
    from localtinker.bridge.app import serve
    from localtinker.settings import BridgeSettings, parse_models

    key = key_for(host)
    folders = parse_models(model or [])
    settings = BridgeSettings(upstream=url, models=folders, host=host, port=port)
    serve(settings, key, announcer(key))


def key_for(host: str) -> str:
    """Return the key that clients need: TINKER_API_KEY or, for loopback only, a new one."""
    from localtinker.settings import check_exposure

    key = os.environ.get("TINKER_API_KEY") or None
    check_exposure(host, key)
    return key or f"tml-local-{secrets.token_hex(16)}"


def announcer(key: str) -> Announce:
    """Return a function that prints what a client needs."""

    def announce(base_url: str) -> None:
        typer.echo(f"export TINKER_BASE_URL={base_url}")
        typer.echo(f"export TINKER_API_KEY={key}")

    return announce


MODEL = typer.Option(
    "--model",
    metavar="NAME=FOLDER",
    help="Folder of a served model, to compare with transformers. May be repeated.",
)
STUDENT = typer.Option(
    help="Model to train.",
    show_default="the first --model, else the first trainable served model",
)
ONLY = typer.Option(
    "--only",
    metavar="CASE",
    help="Run only this case or group and what it needs. May be repeated.",
)
TOLERANCE = typer.Option(
    min=0.0,
    help="Allowed mean difference of equal log-probabilities, in nats; a single one may differ ten times as much.",
)
AS_JSON = typer.Option("--json", metavar="FILE", help="Also write the results to FILE.")


@app.command("check-service")
def check_service(
    url: Annotated[
        str, typer.Argument(help="URL of the server, as in TINKER_BASE_URL: http://HOST:PORT.")
    ],
    model: Annotated[list[str] | None, MODEL] = None,
    student: Annotated[str | None, STUDENT] = None,
    only: Annotated[list[str] | None, ONLY] = None,
    rank: Annotated[int, typer.Option(min=1, help="Rank of the adapters.")] = 8,
    tolerance: Annotated[float, TOLERANCE] = 0.02,
    timeout: Annotated[
        float, typer.Option(min=1, help="Timeout of a case, in seconds.")
    ] = 300.0,
    minutes: Annotated[
        float, typer.Option(min=0.1, help="Timeout of all cases together, in minutes.")
    ] = 60.0,
    as_json: Annotated[Path | None, AS_JSON] = None,
) -> None:
    """Certify a server: test everything that a run needs from Tinker's protocol, and report what a run
    could not do on it.

    About fifty cases cover the SDK's calls, saved weights, consistent arithmetic, and the responses to
    invalid requests. With the folder of a served model (`--model`), its log-probabilities, the gradient of
    each loss and an AdamW step are compared with transformers and torch. The cases train tiny adapters,
    sample a few thousand tokens in total, and delete what they save. The API key is TINKER_API_KEY.

    Exit code: 0 when everything that every run needs works (missing options are listed), 1 when something
    is missing or differs, 2 when there is no key or an argument is invalid.

    Examples:

        localtinker check-service http://127.0.0.1:10610

        localtinker check-service http://gpu7:8000 --model Qwen/Qwen3-8B=models/Qwen3-8B --json gpu7.json

        localtinker check-service http://gpu7:8000 --only resume --only faults --timeout 900
    """
    import logging
    import warnings

    from rich.console import Console

    os.environ.setdefault("TINKER_TELEMETRY", "0")  # read when the SDK is imported
    from transformers.utils.logging import disable_progress_bar

    from localtinker.certify.bench import Server
    from localtinker.certify.examiner import examine
    from localtinker.quiet import quiet
    from localtinker.settings import check_models, parse_models

    folders = parse_models(model or [])
    check_models(folders)
    server = Server(url, student=student, folders=folders, rank=rank, tolerance=tolerance)
    disable_progress_bar()
    # The results have a line for everything that these loggers warn about.
    with (
        quiet(logging.CRITICAL, "tinker", "huggingface_hub"),
        warnings.catch_warnings(action="ignore"),
    ):
        examination = examine(
            server, only or [], case_s=timeout, whole_s=60 * minutes, console=Console()
        )
    examination.show(
        Console()
    )  # first: a file that cannot be written must not cost the results
    if as_json is not None:
        examination.write(as_json)
    if not examination.fit:
        raise typer.Exit(1)


def main() -> None:
    """Run the command line. Errors for the user print a message and a hint."""
    try:
        app()
    except LocalTinkerError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        if error.filename is None:
            raise
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
        sys.exit(LocalTinkerError.exit_code)
