"""`rtl-distill serve-tinker`: the embedded Tinker service in the foreground."""

from __future__ import annotations

import os
import secrets
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from rtl_core.errors import ConfigError


def serve_tinker(
    model: Annotated[list[str], typer.Option("--model", help="A transformers folder, PATH or NAME=PATH; repeatable.")],
    state: Annotated[
        Path | None, typer.Option(help="Folder for checkpoints and the registry [default: a new temporary one].")
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; other than loopback needs TINKER_API_KEY.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.")] = 0,
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16.")] = "float32",
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
    import argparse

    from rtl_core.localtinker.__main__ import check_exposure, check_models, parse_model, serve

    check_models(dict(parse_model(text) for text in model))
    if dtype not in ("float32", "bfloat16"):
        raise ConfigError(f"--dtype {dtype}: must be float32 or bfloat16")
    check_exposure(host, os.environ.get("TINKER_API_KEY"))
    os.environ.setdefault("TINKER_API_KEY", f"tml-local-{secrets.token_hex(16)}")

    def announce(base_url: str) -> None:
        typer.echo(f"export TINKER_BASE_URL={base_url}")
        typer.echo(f"export TINKER_API_KEY={os.environ['TINKER_API_KEY']}")

    folder = state if state is not None else Path(tempfile.mkdtemp(prefix="rtl-distill-tinker-"))
    serve(
        argparse.Namespace(
            model=model,
            state=folder,
            host=host,
            port=port,
            dtype=dtype,
            device=device,
            threads=threads,
            sampling_processes=sampling_processes,
            max_context=max_context,
            deterministic=deterministic,
            idle_seconds=idle_seconds,
            housekeeping_seconds=15.0,
        ),
        announce,
    )
