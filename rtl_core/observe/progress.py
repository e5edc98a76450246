"""Progress of a run: log lines by default (Prefect shows them), or a console that the command line sets.

A few slow items must not look like a hang, so the items in progress can be named at intervals.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Protocol

from rich.console import RenderableType

MOST_NAMED = 4
"""Maximum number of items in progress that are named."""


class Progress(Protocol):
    """Receives the progress of a run. `total` is None where the end is not known."""

    def stage(self, title: str) -> None: ...
    def advance(self, label: str, done: int, total: int | None) -> None: ...
    def line(self, text: str) -> None: ...
    def show(self, renderable: RenderableType) -> None: ...


class LogProgress:
    """Progress as log lines of the logger `rtl_distill`; `advance` logs every tenth only."""

    def __init__(self) -> None:
        self._log = logging.getLogger("rtl_distill")
        self._last: tuple[str, int] = ("", -1)

    def stage(self, title: str) -> None:
        self._log.info("== %s", title)

    def advance(self, label: str, done: int, total: int | None) -> None:
        tenth = 10 * done // total if total else done // 100
        if (label, tenth) != self._last:
            self._last = (label, tenth)
            self._log.info("%s: %d%s", label, done, f" of {total}" if total else "")

    def line(self, text: str) -> None:
        self._log.info("%s", text)

    def show(self, renderable: RenderableType) -> None:
        from rich.console import Console

        console = Console(width=120, color_system=None)
        with console.capture() as capture:
            console.print(renderable)
        self._log.info("\n%s", capture.get().rstrip())


progress: ContextVar[Progress] = ContextVar("progress", default=LogProgress())  # noqa: B039  (stateless but for thinning)


class AtWork:
    """Names of the items in progress, the oldest first."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    @contextmanager
    def item(self, name: str) -> Iterator[None]:
        """Count `name` as in progress within the block."""
        self._since[name] = time.monotonic()
        try:
            yield
        finally:
            self._since.pop(name, None)

    def in_words(self, least_s: float = 0.0) -> str:
        """Return the oldest items with their seconds; empty when none has taken `least_s`."""
        now = time.monotonic()
        names = [f"{name} ({now - since:.0f} s)" for name, since in self._since.items() if now - since >= least_s]
        more = f", and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        return ", ".join(names[:MOST_NAMED]) + more


steps_at_work = AtWork()
"""The tasks of a run that are in progress in this process."""


@asynccontextmanager
async def at_intervals(every_s: float, tell: Callable[[], None]) -> AsyncIterator[None]:
    """Call `tell` every `every_s` seconds while the block runs."""

    async def repeat() -> None:
        while True:
            await asyncio.sleep(every_s)
            tell()

    task = asyncio.create_task(repeat())
    try:
        yield
    finally:
        task.cancel()
