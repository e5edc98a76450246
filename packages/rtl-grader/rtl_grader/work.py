"""Work on many items: several at a time, with progress lines that name what takes long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from attrs import define

from rtl_grader.progress import at_intervals, progress

Result = TypeVar("Result")
Item = TypeVar("Item")

TELL_S = 30.0
"""Seconds between log lines that name the items in progress: a few slow items may take most of the time."""
MOST_NAMED = 4
"""Maximum number of items in progress that are named."""


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
        names = []
        for name, start in self._items:
            if now - start >= least_s:
                names.append(f"{name} ({now - start:.0f} s)")
        if len(names) > MOST_NAMED:
            names[MOST_NAMED:] = [f"and {len(names) - MOST_NAMED} more"]
        return ", ".join(names)


async def all_of(work: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
    """Run all concurrently and return their results. The first failure cancels the others and is raised
    without a group around it."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = list(map(group.create_task, work))
    except BaseExceptionGroup as errors:
        first: BaseException = errors
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        # The message for the user is in the error, not in its group.
        raise first from first.__cause__
    return [task.result() for task in tasks]


@define(eq=False)
class Tally:
    """Progress of the work: `done` of `total` items called `label`."""

    label: str
    total: int
    done: int = 0

    def advance(self, count: int = 1) -> None:
        """Add to the number of finished items."""
        self.done += count
        progress.get().advance(self.label, self.done, self.total)


async def process_all(
    items: Iterable[Item],
    work: Callable[[Item], Awaitable[object]],
    tally: Tally,
    *,
    concurrency: int,
    name: Callable[[Item], str] = str,
    size: Callable[[Item], int] = lambda _: 1,
) -> None:
    """Await `work(item)` for every item, in order and at most `concurrency` at a time. Items are taken as
    workers become free.

    Args:
        tally: advanced by `size(item)` when an item is done.
        name: name of an item in the periodic log line.

    Raises the first error, after cancelling the others.
    """
    remaining, at_work = iter(items), AtWork()

    async def worker() -> None:
        for item in remaining:
            with at_work.item(name(item)):
                await work(item)
            tally.advance(size(item))

    def tell() -> None:
        if words := at_work.in_words():
            progress.get().line(
                f"{tally.done} of {tally.total} {tally.label}; in progress: {words}"
            )

    async with at_intervals(TELL_S, tell):
        await all_of(worker() for _ in range(concurrency))
