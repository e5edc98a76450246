"""How one service runs: its settings, its command line, and the checks of both."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rtl_core.errors import ConfigError
from rtl_core.http_server import is_loopback

MAX_CONTEXT = 32768
"""Longest sequence served, in tokens, unless the service is told otherwise."""


def context_of(model_config: Any, most: int = MAX_CONTEXT) -> int:
    """Tokens of the longest sequence of a model with this configuration (transformers', or that of `modules.py`): its own limit, and no
    more than `most`."""
    text = getattr(model_config, "get_text_config", lambda: model_config)()
    own = getattr(text, "max_position_embeddings", None) or most
    return min(most, own)


@dataclass(frozen=True)
class Settings:
    """How the service runs.

    `device` is what `devices.device_for` takes, `idle_s` the time after which an unused training client moves to disk.
    `sampling_processes` sample the models for which one thread is enough; None: as many as `threads`, and none on a GPU; 0: the
    service samples everything itself.
    """

    models: dict[str, Path]
    state: Path
    dtype: str = "float32"
    device: str = "cpu"
    threads: int = 2
    sampling_processes: int | None = None
    deterministic: bool = False
    max_context: int = MAX_CONTEXT
    idle_s: float = 1800.0
    housekeeping_s: float = 15.0


def build_parser(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m rtl_core.localtinker", description=description)
    parser.add_argument("--model", action="append", required=True, metavar="NAME=PATH", help="a base model; repeatable")
    parser.add_argument("--state", type=Path, required=True, help="folder for the registry and checkpoints")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; other than loopback needs a key")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--device", default="cpu", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1), help="threads of torch on the CPU")
    parser.add_argument(
        "--sampling-processes",
        type=int,
        help="processes that sample small models on the CPU, with one thread each; 0: none (default: as many as threads)",
    )
    parser.add_argument("--max-context", type=int, default=MAX_CONTEXT)
    parser.add_argument("--idle-seconds", type=float, default=1800.0, help="unused training clients move to disk")
    parser.add_argument("--housekeeping-seconds", type=float, default=15.0, help=argparse.SUPPRESS)
    parser.add_argument("--deterministic", action="store_true", help="answers do not depend on what else runs (slower)")
    parser.add_argument("--die-with-parent", action="store_true", help="stop when standard input ends")
    return parser


def parse_model(text: str) -> tuple[str, Path]:
    """NAME=PATH, or PATH alone, which takes the folder's name."""
    name, separator, path = text.partition("=")
    if not separator:
        return Path(text).resolve().name, Path(text)
    return name, Path(path)


def check_models(models: dict[str, Path]) -> None:
    """Raises ConfigError for a path that is no model folder, before anything slow is imported."""
    for name, path in models.items():
        if not (path / "config.json").is_file():
            raise ConfigError(f"model {name!r}: no config.json in {path}", "give the folder of a transformers model")


def check_exposure(host: str, key: str | None) -> None:
    """Raises ConfigError when the service would be reachable from other machines without a key."""
    if key is not None and not key.startswith("tml-"):
        raise ConfigError("TINKER_API_KEY must start with 'tml-': the SDK refuses other keys")
    if not is_loopback(host) and key is None:
        raise ConfigError(
            f"--host {host} is reachable from other machines, so a key is required",
            "set TINKER_API_KEY=tml-... in the service's environment",
        )
