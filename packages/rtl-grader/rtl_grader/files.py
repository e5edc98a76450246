"""Writes files as a whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a path beside `path`, in a folder that exists. The file written there replaces `path`; after an
    error it is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield fresh
        os.replace(fresh, path)
    finally:
        with suppress(OSError):
            fresh.unlink()
