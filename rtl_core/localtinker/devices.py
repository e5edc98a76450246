"""What the models run on: the device, its threads, and how freed memory is kept or given back."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from rtl_core.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?")
LARGE_BYTES = 64 << 20
"""Models with fewer bytes of weights are as fast on a CPU as on a GPU."""
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # malloc.h's names for mallopt(3)
_KEPT = 16 << 20  # freed bytes at the heap's top that stay with the process
_GROWTH = 4 << 20  # the heap grows by at least so much
_LARGEST_ON_HEAP = 32 << 20  # glibc's own limit


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


def use_threads(count: int) -> None:
    """Let torch compute on `count` threads, if it does not already."""
    import torch

    if torch.get_num_threads() != count:
        torch.set_num_threads(count)


def use_fast_products() -> None:
    """Let oneDNN multiply float32 matrices on AMD's processors, where it does so exactly.

    torch's own choice, MKL, reaches half of what their AVX-512 units can do with a large model. torch asks oneDNN only in the mode that
    allows bfloat16, in which oneDNN rounds where the processor multiplies bfloat16 faster (Intel's AMX), and computes in float32 elsewhere.
    """
    import torch

    # oneDNN and torch each keep code for the last 1,024 shapes, so for as many counts of rows: gigabytes. SmolLM2 loses nothing by fewer.
    for cache in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(cache, "32")
    if not (processor := Path("/proc/cpuinfo")).exists() or "AuthenticAMD" not in processor.read_text():
        return
    mode = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    mode.fp32_precision = "bf16"
    if not is_exact(torch.mm):
        mode.fp32_precision = "ieee"


def is_exact(multiply: Callable[[Tensor, Tensor], Tensor]) -> bool:
    """Whether a product of float32 matrices has float32's digits: bfloat16 would err by more than .01 here, float32 by 1e-4."""
    import torch

    a = torch.arange(64.0 * 576).sin().view(64, 576)
    return bool((multiply(a, a.t()) - a.double() @ a.double().t()).abs().max() < 1e-3)


def keep_freed_memory() -> None:
    """Keep what is freed for the next tensor, up to 16 MiB.

    glibc hands a pass's freed tensors back to the kernel and gets them again, page by page and zeroed, for the next pass: 7 % of
    the time of scoring with a small model. Does nothing with another C library, and leaves what the user has set.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None or any(name.startswith("MALLOC_") and name.endswith("_") for name in os.environ):
        return
    mallopt(_M_MMAP_THRESHOLD, _LARGEST_ON_HEAP)
    mallopt(_M_TRIM_THRESHOLD, _KEPT)
    mallopt(_M_TOP_PAD, _GROWTH)


def give_back_free_memory() -> None:
    """Hand the free pages of the heaps back to the kernel; takes milliseconds. Does nothing with another C library.

    Weights that come and go leave holes between what stays: without this a service that sees two new snapshots a second grows by
    7 % in five minutes.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
