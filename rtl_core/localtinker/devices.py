"""Which device the models run on."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from rtl_core.errors import ConfigError

DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?")
LARGE_BYTES = 64 << 20
"""Weights from which on a GPU is worth while; smaller models are as fast on a CPU."""


def device_for(wanted: str, models: Iterable[Path]) -> str:
    """torch's name of the device for models in these folders: `wanted`, or, for `auto`, a GPU if there is one and a model is worth it.

    Raises:
        ConfigError: `wanted` is no device, or is not on this machine.
    """
    import torch

    if not DEVICE.fullmatch(wanted):
        raise ConfigError(f"{wanted!r} is no device", "take auto, cpu, cuda or cuda:N")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if wanted == "auto":
        return "cuda" if count and max(map(weight_bytes, models), default=0) >= LARGE_BYTES else "cpu"
    number = int(wanted.partition(":")[2] or 0)
    if wanted != "cpu" and number >= count:
        have = f"this machine has {count} that torch {torch.__version__} can use"
        raise ConfigError(f"there is no device {wanted!r}: {have}", "take cpu or auto")
    return wanted


def weight_bytes(folder: Path) -> int:
    """Size of the files with weights in a model's folder."""
    return sum(file.stat().st_size for kind in ("*.safetensors", "*.bin", "*.gguf") for file in folder.glob(kind))
