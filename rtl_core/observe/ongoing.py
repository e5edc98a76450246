"""What is under way at this moment, told at intervals: items of very different length must not look like a standstill."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

MOST_NAMED = 4


class AtWork:
    """Names of items at work, longest first."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    @contextmanager
    def item(self, name: str) -> Iterator[None]:
        """`name` is at work within the block."""
        self._since[name] = time.monotonic()
        try:
            yield
        finally:
            self._since.pop(name, None)

    def in_words(self) -> str:
        """The longest ones with their seconds; empty when nothing is at work."""
        now = time.monotonic()
        names = [f"{name} ({now - since:.0f} s)" for name, since in self._since.items()]
        more = f", and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        return ", ".join(names[:MOST_NAMED]) + more


@asynccontextmanager
async def at_intervals(every_s: float, tell: Callable[[], None]) -> AsyncIterator[None]:
    """Calls `tell` every so many seconds while the block runs."""

    async def repeat() -> None:
        while True:
            await asyncio.sleep(every_s)
            tell()

    task = asyncio.create_task(repeat())
    try:
        yield
    finally:
        task.cancel()
