"""Tell a run when it waits for Prefect's server. Prefect's client asks a busy server again, for minutes, and says so in its debug log alone."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_CLIENT = logging.getLogger("prefect.client")
_AGAIN = re.compile(r"(.*)Another attempt will be made in ([\d.]+)s\. This is attempt (\d+)/\d+")
FIRST_ATTEMPT = 3
"""A server on SQLite answers 503 now and then and serves the second request; the third is made after some six seconds."""
AGAIN_S = 60.0
_heard = threading.Lock()


@contextmanager
def server_waits_told(tell: Callable[[str], None]) -> Iterator[None]:
    """A line when a request fails for the third time, and then at most one a minute, from whichever thread makes it.

    A block inside another one adds nothing: a command waits for the server also before and after its flow.
    """
    if not _heard.acquire(blocking=False):
        yield
        return
    level, effective, told = _CLIENT.level, _CLIENT.getEffectiveLevel(), -AGAIN_S

    def hear(record: logging.LogRecord) -> bool:
        nonlocal told
        again = _AGAIN.match(record.getMessage())
        if again and int(again[3]) >= FIRST_ATTEMPT and time.monotonic() - told >= AGAIN_S:
            told = time.monotonic()
            why = again[1].strip().replace("retryable ", "")
            tell(f"waiting for Prefect's server, which is busy or away: asked again in {float(again[2]):.0f} s. {why}")
        return record.levelno >= effective

    _CLIENT.addFilter(hear)
    _CLIENT.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        _CLIENT.setLevel(level)
        _CLIENT.removeFilter(hear)
        _heard.release()
