"""A pipeline of steps in which the next ones are prepared while one is trained."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")
Prepared = TypeVar("Prepared")
Reason = TypeVar("Reason")


async def in_order(
    items: Iterable[Item],
    *,
    prepare: Callable[[Item], Awaitable[Prepared]],
    finish: Callable[[Prepared], Awaitable[object]],
    after: Callable[[Prepared], Awaitable[object]],
    stop: Callable[[int], Reason | None],
    ahead: int,
) -> Reason | None:
    """Prepare and finish all items, with `after` following each, until `stop` returns a reason.

    With n = `ahead`, item i is prepared as soon as item i − n − 1 is finished, and items are finished
    strictly in order, one at a time. So at most n items are finished between the start of a preparation and
    its own finish. With n = 0 nothing overlaps.

    Args:
        prepare: runs for up to `ahead` + 1 items concurrently; its result goes to `finish` and `after`.
        finish: runs for one item at a time.
        after: runs after each `finish`. With `ahead` 0 it ends before the next item starts.
        stop: called before each item starts, with the number of items in progress; returns why no more
            should start, or None.

    Returns:
        The reason from `stop`, or None. Items in preparation are prepared completely (they are paid for)
        but not finished.

    Raises:
        The first error in the order of the items; preparations of later ones are cancelled.
    """
    waiting = deque(items)
    in_progress: deque[asyncio.Future[Prepared]] = deque()
    reason: Reason | None = None

    def begin() -> None:
        nonlocal reason
        while waiting and reason is None and len(in_progress) <= ahead:
            reason = stop(len(in_progress))
            if reason is None:
                in_progress.append(asyncio.ensure_future(prepare(waiting.popleft())))

    try:
        begin()
        while in_progress and reason is None:
            prepared = await in_progress[0]
            await finish(prepared)
            in_progress.popleft()
            if ahead:
                begin()
            await after(prepared)
            begin()
        await asyncio.gather(*in_progress)
    except BaseException:
        for preparing in in_progress:
            preparing.cancel()
        await asyncio.gather(*in_progress, return_exceptions=True)
        raise
    return reason
