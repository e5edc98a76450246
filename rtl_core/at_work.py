"""What a run works on and waits for: its tasks, requests to a service, and pauses of the service."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable
from typing import TypeVar

from rtl_grader.work import AtWork

Answer = TypeVar("Answer")
PAUSE_LASTS_S = 150.0
"""A pause lasts while it is reported again within this time; the SDK reports one every minute."""


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


def slow_work(least_s: float) -> str:
    """What the run has worked on or waited for for at least `least_s` seconds, in words, so that a service
    that hangs or pauses is noticed; empty if nothing."""
    parts = []
    for title, work in (
        ("still in progress", steps_at_work),
        ("outstanding requests", calls_at_work),
    ):
        if items := work.in_words(least_s=least_s):
            parts.append(f"{title}: {items}")
    if reason := service_pause.in_words():
        parts.append(reason)
    return "; ".join(parts)
