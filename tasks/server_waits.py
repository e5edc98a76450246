"""Tell a run when it waits for Prefect's server. Prefect's client asks a busy server again, for minutes, and says so in its debug log alone."""

from __future__ import annotations

import logging
import re
import time

FIRST_ATTEMPT = 3
"""A server on SQLite answers 503 now and then and serves the second request; the third is made after some six seconds."""
AGAIN_S = 60.0
_CLIENT = logging.getLogger("prefect.client")
_AGAIN = re.compile(r"(.*)Another attempt will be made in ([\d.]+)s\. This is attempt (\d+)/\d+")
_told: list[float] = []


def tell_server_waits() -> None:
    """From now on in this process, warn when a request fails for the third time, and then at most once a minute."""
    _CLIENT.addFilter(_hear)
    _CLIENT.setLevel(logging.DEBUG)


def _hear(record: logging.LogRecord) -> bool:
    again = _AGAIN.match(record.getMessage())
    if again and int(again[3]) >= FIRST_ATTEMPT and (not _told or time.monotonic() - _told[-1] >= AGAIN_S):
        _told[:] = [time.monotonic()]
        logging.getLogger("rtl_distill").warning(
            "waiting for Prefect's server, which is busy or away: asked again in %.0f s. %s",
            float(again[2]),
            again[1].strip().replace("retryable ", ""),
        )
    return record.levelno >= logging.getLogger("prefect").getEffectiveLevel()
