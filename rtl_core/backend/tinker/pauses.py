"""Report why the SDK waits. The SDK only logs it, and the run seems to hang.

Like the SDK, a run waits while an account has no credit: adding credit takes minutes, waiting costs
nothing, and requests in progress on the service are not lost. After an hour
(`billing_exception_max_pause_duration_sec`, a setting of the service) the SDK gives up, and the run ends
with everything recorded (402 in faults.py).
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from localtinker.client.failures import status_of
from rtl_core.at_work import service_pause
from rtl_core.types.tell import Tell

Made = TypeVar("Made")

AGAIN_S = 600.0
"""Minimum interval between two reports of the same pause."""
UNPAID_PATIENCE_S, UNPAID_PAUSE_S = 3600.0, 5.0
"""The same as the SDK's."""
RAISED_TOO = (
    "tinker.lib.retry_handler",
    "tinker.lib.session_futures_poller",
    "tinker.lib.api_future_impl",
)
"""Loggers whose warnings are also raised as errors, or only report a continued long poll."""


class Pauses(logging.Handler):
    """Log handler that reports the SDK's warnings to a run: each one immediately, then every ten minutes.
    Thread-safe."""

    def __init__(self, tell: Tell, services: int = 1) -> None:
        """`services`: number of paid services. The SDK does not say which one refused, so a pause ends when
        all have served."""
        super().__init__(logging.WARNING)
        self._services = services
        self._served: set[object] = set()
        self._tell = tell
        self._told: dict[object, float] = {}
        self._unpaid_since: float | None = None
        self._guard = threading.Lock()

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if "due to billing" in message:
            self.note_refusal(message.partition("Error: ")[2] or message)
            return
        if "is paused" in message:
            service_pause.report(message)
        # The same SDK line logs pauses for different reasons.
        what = (record.pathname, record.lineno, message.partition("Reason: ")[2])
        if record.name not in RAISED_TOO and self._is_due(what):
            self._tell(f"Tinker: {message}")

    def note_refusal(self, words: str) -> None:
        """Record that a request was refused for lack of credit. It will be retried."""
        service_pause.report(f"the account has no credit (402): {words}")
        with self._guard:
            self._unpaid_since = self._unpaid_since or time.monotonic()
            self._served.clear()
        if self._is_due("unpaid"):
            self._tell(
                f"the account has no credit at Tinker (402): {words}. The run waits for up to an "
                "hour and continues once credit is "
                "added. To stop it now, press Ctrl-C: everything is saved, and the same command resumes it"
            )

    def note_success(self, begun: float, service: object = None) -> None:
        """Record that a service served a request made at `begun` (monotonic seconds). It ends a pause only
        if made after the refusal."""
        with self._guard:
            since = self._unpaid_since
            if since is not None and since < begun:
                self._served.add(service)
            over = len(self._served) == self._services
            if over:
                self._unpaid_since = None
                self._served.clear()
                self._told.pop("unpaid", None)
        if since is not None and over:
            self._tell(
                f"Tinker serves the account again, after {time.monotonic() - since:.0f} s without credit"
            )

    async def retry_unpaid(self, make: Callable[[], Awaitable[Made]]) -> Made:
        """Call `make`, retrying while the account has no credit. The SDK does not do this when it opens a
        client or session."""
        deadline = time.monotonic() + UNPAID_PATIENCE_S
        while True:
            try:
                return await make()
            except Exception as error:
                if status_of(error) != 402 or time.monotonic() > deadline:
                    raise
                self.note_refusal(str(error))
            await asyncio.sleep(UNPAID_PAUSE_S)

    def _is_due(self, what: object) -> bool:
        now = time.monotonic()
        with self._guard:
            due = now - self._told.get(what, -AGAIN_S) >= AGAIN_S
            if due:
                self._told[what] = now
        return due


@contextmanager
def pauses_reported(tell: Tell, services: int = 1) -> Iterator[Pauses]:
    """Send the SDK's warnings only to `tell` within the block. `services`: see `Pauses`."""
    logger = logging.getLogger("tinker")
    pauses, propagated = Pauses(tell, services), logger.propagate
    logger.addHandler(pauses)
    logger.propagate = False
    try:
        yield pauses
    finally:
        logger.propagate = propagated
        logger.removeHandler(pauses)
