"""What old weights leave behind goes back to the kernel."""

from __future__ import annotations

import ctypes


def give_back_free_memory() -> None:
    """Hand the free pages of the heaps back to the kernel; takes milliseconds. Does nothing with another C library.

    Weights that come and go leave holes between what stays: without this a service that sees two new snapshots a second grows by
    7 % in five minutes.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
