"""Loggers that are silent for a while."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet(level: int, *names: str) -> Iterator[None]:
    """Within the block, set these loggers to `level`; restore their levels afterwards."""
    before = {logger: logger.level for logger in map(logging.getLogger, names)}
    for logger in before:
        logger.setLevel(level)
    try:
        yield
    finally:
        for logger, own in before.items():
            logger.setLevel(own)
