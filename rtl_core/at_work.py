"""What this process works on and waits for: named items with their seconds, requests to a service, and pauses of the service.

A few slow items must not look like a hang, so the items in progress can be named at intervals.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Answer = TypeVar("Answer")
MOST_NAMED = 4
"""Maximum number of items in progress that are named."""
PAUSE_LASTS_S = 150.0
"""A pause lasts while it is reported again within this time; the SDK reports one every minute."""


class AtWork:
    """Names of the items in progress, the oldest first."""

    def __init__(self) -> None:
        self._items: list[tuple[str, float]] = []

    @contextmanager
    def item(self, name: str) -> Iterator[None]:
        """Count `name` as in progress within the block."""
        item = name, time.monotonic()
        self._items.append(item)
        try:
            yield
        finally:
            self._items.remove(item)

    def in_words(self, least_s: float = 0.0) -> str:
        """Return the oldest items with their seconds; empty when none has taken `least_s`."""
        now = time.monotonic()
        names = [f"{name} ({now - since:.0f} s)" for name, since in self._items if now - since >= least_s]
        more = f", and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        return ", ".join(names[:MOST_NAMED]) + more


steps_at_work, calls_at_work = AtWork(), AtWork()
"""The tasks of a run that are in progress in this process, and its outstanding requests to a service."""


async def outstanding(name: str, request: Awaitable[Answer]) -> Answer:
    """Return the answer to a request, which counts as outstanding until it arrives."""
    with calls_at_work.item(name):
        return await request


class Pause:
    """The pause of a service, and the seconds of all its pauses so far."""

    seconds, _reason, _reported = 0.0, "", -math.inf

    def report(self, reason: str) -> None:
        """Note that a service is paused now."""
        before, self._reported, self._reason = self._reported, time.monotonic(), reason
        if self._reported - before < PAUSE_LASTS_S:
            self.seconds += self._reported - before

    def in_words(self) -> str:
        """Return the reason of a pause that lasts; else an empty text."""
        return self._reason if time.monotonic() - self._reported < PAUSE_LASTS_S else ""


service_pause = Pause()
