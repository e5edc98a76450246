"""Device, threads and memory allocation of the models."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from localtinker.errors import SettingsError

if TYPE_CHECKING:
    from torch import Tensor

DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?")
LARGE_BYTES = 64 << 20
"""Models with fewer bytes of weights are as fast on a CPU as on a GPU, and on one thread as on two."""


def device_for(name: str, models: Iterable[Path]) -> str:
    """Return torch's name of the device for models in these folders. `auto` takes a GPU if there is one and
    a model is large enough.

    Raises:
        SettingsError: `name` is not a valid device, or not on this machine.
    """
    import torch

    if not DEVICE.fullmatch(name):
        raise SettingsError(f"{name!r} is not a device", "use auto, cpu, cuda or cuda:N")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        largest = max(map(weight_bytes, models), default=0)
        return "cuda" if count and largest >= LARGE_BYTES else "cpu"
    number = int(name.partition(":")[2] or 0)
    if name != "cpu" and number >= count:
        have = f"torch {torch.__version__} can use {count} GPU(s) on this machine"
        raise SettingsError(f"there is no device {name!r}: {have}", "use cpu or auto")
    return name


def weight_bytes(folder: Path) -> int:
    """Return the size of the weight files in a model's folder."""
    kinds = (".safetensors", ".bin", ".gguf")
    return sum(file.stat().st_size for file in folder.glob("*") if file.suffix in kinds)


def use_threads(count: int) -> None:
    """Set torch's number of threads. Does nothing if it is already `count`."""
    import torch

    if torch.get_num_threads() != count:
        torch.set_num_threads(count)


def use_fast_products() -> None:
    """Use oneDNN for float32 matrix products on AMD processors, if its results are exact.

    torch's default, MKL, reaches half the speed of their AVX-512 units with a large model. torch uses
    oneDNN only in the mode that permits bfloat16. In that mode oneDNN rounds on processors with fast
    bfloat16 (Intel AMX), and computes in float32 on others.
    """
    import torch

    # oneDNN and torch each cache code for the last 1,024 shapes, which may take gigabytes. SmolLM2 is as
    # fast with smaller caches.
    for cache in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(cache, "32")
    processor = Path("/proc/cpuinfo")
    if not processor.exists() or "AuthenticAMD" not in processor.read_text():
        return
    mode = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    mode.fp32_precision = "bf16"
    if not is_exact(torch.mm):
        mode.fp32_precision = "ieee"


def is_exact(multiply: Callable[[Tensor, Tensor], Tensor]) -> bool:
    """Whether a matrix product has float32 precision: the error here is above .01 in bfloat16, and 1e-4 in float32."""
    import torch

    a = torch.arange(64.0 * 576).sin().view(64, 576)
    exact = a.double() @ a.double().t()
    error = (multiply(a, a.t()) - exact).abs().max()
    return bool(error < 1e-3)


def give_back_free_memory() -> None:
    """Return free heap pages to the kernel; takes milliseconds. Does nothing with another C library.

    Freed weights fragment the heap: without this, a service that gets two new snapshots a second grows by 7 %
    in five minutes.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim:
        trim(0)
