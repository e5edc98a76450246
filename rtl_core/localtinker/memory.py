"""How the memory allocator behaves: what is freed between two passes stays, what old weights leave behind goes."""

from __future__ import annotations

import ctypes
import os

# malloc.h's names for mallopt(3).
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_KEPT = 16 << 20  # freed bytes at the heap's top that stay with the process
_GROWTH = 4 << 20  # the heap grows by at least so much
_LARGEST_ON_HEAP = 32 << 20  # glibc's own limit


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
