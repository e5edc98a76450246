"""Silence of chatty loggers while a command says the same in lines of its own."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet(level: int, *names: str) -> Iterator[None]:
    """Within the block, these loggers say nothing below `level`; a run that follows in the same process is heard again."""
    before = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(level)
    try:
        yield
    finally:
        for name, own in before.items():
            logging.getLogger(name).setLevel(own)
