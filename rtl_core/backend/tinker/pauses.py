"""What the SDK waits for, in a run's own lines: it tells of it by its logger alone, while a run seems to hang.

An account without credit is waited for, as the SDK does: to pay takes a person minutes, nothing is spent in the meantime, and what is
under way on the service is not lost. After an hour (`billing_exception_max_pause_duration_sec`, the service's own setting) the SDK gives
up, and the run ends with everything recorded (402 in faults.py).
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rtl_core.backend.tinker.faults import status_of

Made = TypeVar("Made")

AGAIN_S = 600.0
"""How often one thing is told while it lasts."""
UNPAID_PATIENCE_S, UNPAID_PAUSE_S = 3600.0, 5.0
"""As the SDK's own."""
RAISED_TOO = ("tinker.lib.retry_handler", "tinker.lib.session_futures_poller", "tinker.lib.api_future_impl")
"""Loggers whose warnings come as errors as well, or say that a long poll goes on."""


class Pauses(logging.Handler):
    """Hears the SDK's warnings and tells them to a run, each at once and then every ten minutes; any thread may call it."""

    def __init__(self, tell: Callable[[str], None], services: int = 1) -> None:
        """`services`: how many a run has. The SDK does not tell which of them refused, so all must have served before that is over."""
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
            self.unpaid(message.partition("Error: ")[2] or message)
            return
        # A pause for another reason comes from the same line of the SDK.
        what = (record.pathname, record.lineno, message.partition("Reason: ")[2])
        if record.name not in RAISED_TOO and self._is_due(what):
            self._tell(f"Tinker: {message}")

    def unpaid(self, words: str) -> None:
        """A request was refused for want of credit and will be made again."""
        with self._guard:
            self._unpaid_since = self._unpaid_since or time.monotonic()
            self._served.clear()
        if self._is_due("unpaid"):
            self._tell(
                f"the account has no credit at Tinker (402): {words}. The run waits for up to an hour and goes on by itself once "
                "credit is added; to stop it now, press Ctrl-C: everything is saved, and the same command goes on"
            )

    def served(self, begun: float, service: object = None) -> None:
        """A request of that moment (monotonic, in seconds) was served by one of the services. One made after a refusal for want of credit
        ends the pause; one of before says nothing."""
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
            self._tell(f"Tinker serves the account again, after {time.monotonic() - since:.0f} s without credit")

    async def when_paid(self, make: Callable[[], Awaitable[Made]]) -> Made:
        """What `make` makes. Where the SDK opens a client or a session it does not wait for credit, so this does."""
        deadline = time.monotonic() + UNPAID_PATIENCE_S
        while True:
            try:
                return await make()
            except Exception as error:
                if status_of(error) != 402 or time.monotonic() > deadline:
                    raise
                self.unpaid(str(error))
            await asyncio.sleep(UNPAID_PAUSE_S)

    def _is_due(self, what: object) -> bool:
        now = time.monotonic()
        with self._guard:
            due = now - self._told.get(what, -AGAIN_S) >= AGAIN_S
            if due:
                self._told[what] = now
        return due


@contextmanager
def pauses_told(tell: Callable[[str], None], services: int = 1) -> Iterator[Pauses]:
    """The SDK's warnings go to `tell` within the block, and nowhere else. `services`: of so many together."""
    logger = logging.getLogger("tinker")
    pauses, propagated = Pauses(tell, services), logger.propagate
    logger.addHandler(pauses)
    logger.propagate = False
    try:
        yield pauses
    finally:
        logger.propagate = propagated
        logger.removeHandler(pauses)
