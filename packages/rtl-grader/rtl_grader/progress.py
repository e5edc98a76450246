"""Progress of a run: log lines by default (Prefect shows them), or a console that the command line sets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Protocol

from rich.console import RenderableType


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


# The default is shared; its only state thins out its own lines.
progress: ContextVar[Progress] = ContextVar("progress", default=LogProgress())  # noqa: B039


def log_line(text: str) -> None:
    """Add a line to the log of what is running."""
    progress.get().line(text)


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
